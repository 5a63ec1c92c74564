"""The ten jobs that users come for, each from the first page in at most so many clicks."""

import re
import time
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest

from exgrpo.jobs.runs.directory import RunDirectory
from tests.app import web_server
from tests.browser.clicks import IDLE, enter, rows
from tests.jobs.runs.rollout_formats.test_verl_dumps import line

pytestmark = [pytest.mark.browser, pytest.mark.slow]


class Clicks:
    """Clicks on what a role and name, or a locator, say; more than `most` fail the test."""

    def __init__(self, page, most):
        self.page, self.left = page, most

    def __call__(self, role, name=None, **options):
        self.left -= 1
        assert self.left >= 0, "more clicks than the job may take"
        target = self.page.get_by_role(role, name=name) if isinstance(role, str) else role
        self.page.locator(IDLE).wait_for()
        target.first.click(**options)

    def row(self, words):
        search = self.page.get_by_role("textbox", name="Search runs")
        search.fill(words)
        search.press("Enter")
        self.page.wait_for_url(re.compile("q="))
        self.page.locator(".data-table [aria-rowcount='2']").wait_for()  # its head and the one that was found
        self(rows(self.page))


@pytest.fixture
def own(tmp_path, browser):
    """A workbench of its own, without runs, and a page of it: what is launched there is seen by no other test."""
    (tmp_path / "runs").mkdir()
    served = web_server.start(tmp_path / "runs")
    with _enter(browser, served) as page:
        yield page, tmp_path / "runs"
    served.stop()


@contextmanager
def _enter(browser, served):
    context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(90_000)
    enter(page, served.link)
    page.get_by_role("heading", level=1).wait_for()
    yield page
    context.close()


def test_first_run(own):
    page, runs_root = own
    click = Clicks(page, 2)
    click("link", "New run")
    click("button", re.compile("Launch run"))
    page.wait_for_url(re.compile(r"/run\?run="))
    (run,) = [path for path in runs_root.iterdir() if path.name != "workbench"]
    assert RunDirectory(run).spec().preset == "chains-exgrpo"


def test_script_for_a_cluster_that_one_does_not_have(open_page):
    page = open_page("/").page
    click = Clicks(page, 3)
    click("link", "New run")
    click(page.get_by_text("A cluster", exact=True))
    page.get_by_text(re.compile("Ready for a script")).wait_for()
    with page.expect_download() as started:
        click("button", re.compile("Shell script"))
    assert "engine: verl" in Path(started.value.path()).read_text(encoding="utf-8")


def test_why_a_run_failed_and_its_field(open_page):
    page = open_page("/").page
    click = Clicks(page, 2)
    click.row("run-failed")
    click("button", re.compile("Clone and fix"))
    page.wait_for_url(re.compile("section=Optimizer"))
    mark = page.locator('[class*="optim-learning_rate"]').get_by_text("the loss is not a finite number")
    mark.first.wait_for()


def test_the_trajectory_replayed_most_retired_questions_included_and_its_life(open_page):
    page = open_page("/run?run=play-finished").page
    click = Clicks(page, 4)
    click("tab", "Trajectories")
    click("button", "Times replayed")
    page.wait_for_url(re.compile("sort=-replays"))
    click(rows(page))
    page.wait_for_url(re.compile("trajectory="))
    click("tab", "Lineage")
    page.get_by_text(re.compile("candidate in .* replayed in")).wait_for()


def test_figure_for_a_paper(open_page):
    page = open_page("/").page
    click = Clicks(page, 3)
    click.row("run-finished")
    card = page.locator('[class*="st-key-card-"]').filter(has=page.get_by_role("button", name="Export")).first
    click(card.get_by_role("button", name="Export"))
    title = card.locator("strong").first.inner_text()
    with page.expect_download() as started:
        click("button", "SVG")
    figure = ElementTree.parse(started.value.path())
    assert figure.getroot().tag == "{http://www.w3.org/2000/svg}svg"
    texts = {"".join(item.itertext()) for item in figure.iter("{http://www.w3.org/2000/svg}text")}
    assert {title, "step"} <= texts


def test_buffer_over_time_and_a_step_with_another_setting(open_page):
    page = open_page("/").page
    click = Clicks(page, 5)
    click.row("play-finished")
    curve = page.locator(".js-plotly-plot .nsewdrag").first
    curve.hover()
    page.locator(".hoverlayer .hovertext, .hoverlayer .legend").first.wait_for()
    curve.click()
    page.wait_for_url(re.compile(r"view=Step.*step=\d+|step=\d+.*view=Step"))
    page.get_by_role("button", name="Other settings").wait_for()
    click("tab", "Buffer")
    click("tab", "Over time")
    page.get_by_text("Replay buffer and retired set").first.wait_for()
    click("tab", "Step")
    click("button", "Other settings")
    setting = page.get_by_label("With another setting", exact=True)
    setting.fill("sigma=0.01")
    setting.press("Enter")
    page.get_by_text(re.compile(r"\d+ of \d+ comparisons? differs?")).first.wait_for()


def test_another_setting_stays_while_one_goes_to_other_steps(open_page):
    page = open_page("/run?run=play-finished&view=Step&setting=sigma%3D0.01").page
    heading = page.get_by_text("With sigma=0.01", exact=True)
    heading.wait_for()
    step = page.get_by_role("slider", name="Step")
    before = int(step.input_value())
    step.press("ArrowLeft")
    page.wait_for_url(re.compile(rf"setting=.*step={before - 1}|step={before - 1}.*setting="))
    page.locator(IDLE).wait_for()
    heading.wait_for()
    page.get_by_role("tab", name="Curves").click()
    curve = page.locator(".js-plotly-plot .nsewdrag").first
    curve.hover()
    page.locator(".hoverlayer .hovertext, .hoverlayer .legend").first.wait_for()
    curve.click()
    page.wait_for_url(re.compile("view=Step"))
    heading.wait_for(state="detached")


def test_rollouts_from_ones_own_machine_are_filtered_and_one_with_a_note_is_found_again(browser, tmp_path):
    with web_server.start_with_supervisor(tmp_path / "runs") as served, _enter(browser, served) as page:
        _open_and_filter(page, tmp_path)
        _mark_and_find(page)


def _open_and_filter(page, tmp_path):
    for step in (1, 2):
        lines = [line(question, rollout, float(rollout < 1), step) for question in range(2) for rollout in range(4)]
        (tmp_path / f"{step}.jsonl").write_text("".join(lines), encoding="utf-8")
    click = Clicks(page, 6)
    click("button", "Open rollouts")
    with page.expect_file_chooser() as chooser:
        click("button", re.compile("Upload"))
    chooser.value.set_files([tmp_path / "1.jsonl", tmp_path / "2.jsonl"])
    page.get_by_text("2.jsonl").wait_for()
    click("button", re.compile("Open$"))
    page.wait_for_url(re.compile(r"/run\?run="))
    click("tab", "Trajectories")
    page.get_by_text("16 of 16 trajectories, newest first").wait_for()
    click(page.get_by_text("Filters", exact=True))
    click("combobox", re.compile("Outcome"))
    page.get_by_role("option", name="correct (4)", exact=True).click()
    page.get_by_text("4 of 4 trajectories, newest first").wait_for()
    page.locator(".data-table [aria-rowcount='5']").wait_for()  # its head and these


def _mark_and_find(page):
    click = Clicks(page, 6)
    click(rows(page))
    page.wait_for_url(re.compile("trajectory="))
    opened = page.get_by_role("heading", name=re.compile(r"^Trajectory \d+$"))
    opened.wait_for()
    number = opened.inner_text()
    click("button", re.compile("Mark$"))
    page.get_by_role("textbox", name="Mark", exact=True).fill("wrong tool")
    page.get_by_label("Comment").fill("It asks twice")
    click("button", "Save")
    page.get_by_test_id("stToast").get_by_text("Saved").wait_for()
    click("button", re.compile("Close$"))
    opened.wait_for(state="detached")
    marks = page.get_by_role("combobox", name=re.compile("Marked trajectories"))
    ends_at = time.monotonic() + 90
    while not marks.count():  # until the supervisor has read the mark
        assert time.monotonic() < ends_at, "the page offers no marked trajectories 90 seconds after one was marked"
        page.reload()
        page.locator(IDLE).wait_for()
    click(marks)
    page.get_by_role("option", name="wrong tool (1)").click()
    click(rows(page).filter(has_text="It asks twice"))
    page.get_by_role("heading", name=number, exact=True).wait_for()


def test_branch_with_another_learning_rate(open_page):
    page = open_page("/").page
    click = Clicks(page, 4)
    click.row("run-finished")
    click("button", re.compile("Branch"))
    rate = page.get_by_label("Learning rate", exact=True)
    click(rate)
    rate.fill("0.00002")
    rate.press("Enter")
    page.get_by_text("1 change from the parent").wait_for()
    page.get_by_text(re.compile(r"exgrpo branch run-finished --step 30")).first.wait_for()
    click("button", re.compile("Launch run"))
    page.wait_for_url(re.compile(r"/run\?run="))
    page.get_by_role("heading", name="Queued").wait_for()


def test_case_for_a_paper(open_page):
    page = open_page("/").page
    click = Clicks(page, 5)
    click.row("play-finished")
    click("tab", "Reasoning")
    click("tab", "Cases")
    click("button", re.compile("For a paper"))
    with page.expect_download() as started:
        click("button", "LaTeX")
    assert "\\begin{" in Path(started.value.path()).read_text(encoding="utf-8")


def test_benchmark_of_ones_own(open_page, tmp_path):
    (tmp_path / "sums.jsonl").write_text('{"problem": "What is 1+1?", "answer": "2"}\n', encoding="utf-8")
    page = open_page("/").page
    click = Clicks(page, 5)
    click("link", "Benchmarks")
    click("button", "Score models")
    with page.expect_file_chooser() as chooser:
        click("button", re.compile("Upload"))
    chooser.value.set_files(tmp_path / "sums.jsonl")
    page.get_by_text("Gold answer: 2, graded as math").wait_for()
    model = page.get_by_role("combobox", name=re.compile("Model"))
    click(model)
    model.first.fill("owner/model")
    model.first.press("Enter")
    model.first.press("Tab")
    click("button", "Start evaluation")
    page.wait_for_url(re.compile(r"/run\?run="))
    page.get_by_role("heading", name="Queued").wait_for()


def test_chains_of_thought_judged(open_page):
    page = open_page("/").page
    click = Clicks(page, 3)
    click.row("play-finished")
    click("tab", "Reasoning")
    click("tab", "Verdicts")
    rows(page).first.wait_for()
