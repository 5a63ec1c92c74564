"""Hostile texts are inert: in a real browser, on every page that shows them, on a terminal and in exported tables."""

import csv
import io
import re
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from typer.testing import CliRunner

from exgrpo.app.components.widgets.data_table import as_csv, as_latex, as_markdown
from exgrpo.db.rows.display_names import escape_control_characters
from exgrpo.jobs.cli.main import app
from tests.app import web_server
from tests.browser.clicks import enter
from tests.browser.conftest import Watched
from tests.security import hostile

pytestmark = pytest.mark.slow

RUN, PLAYED, THOUGHTS = f"run={hostile.RUN}", f"run={hostile.PLAYED}", f"run={hostile.THOUGHTS}"
MARK = "pwned"
PAGES = {
    "/": MARK, f"/?q={quote(chr(34) + hostile.PAYLOADS[2] + chr(34))}": MARK, f"/run?{RUN}": MARK,
    f"/run?{RUN}&view=Configuration": MARK, f"/run?{RUN}&view=Log": MARK,
    f"/run?run={quote(hostile.PAYLOADS[2])}": "No such run", "/run?run=eval-late": "MATH-500",
    "/run?run=judge-voted": "no_box", f"/compare?runs={hostile.RUN},{hostile.PLAYED}": MARK,
    f"/run?view=Trajectories&{PLAYED}&trajectory=1&part=Text": MARK,
    f"/run?view=Trajectories&{PLAYED}&trajectory=1&part=Text&mathematics=true": MARK,
    f"/run?view=Trajectories&{PLAYED}&trajectory=1&part=Tokens": MARK,
    f"/run?view=Trajectories&{PLAYED}&trajectory=1&part=Lineage": MARK,
    f"/run?view=Trajectories&{PLAYED}&trajectory=1&part=Group": MARK,
    f"/run?view=Trajectories&{PLAYED}&trajectory=1&part=Question": MARK,
    f"/run?view=Trajectories&{PLAYED}&marked={quote(hostile.PAYLOADS[28])}": MARK,
    f"/run?view=Buffer&{PLAYED}": "questions in the buffer", f"/run?view=Step&{PLAYED}": "comparisons",
    f"/run?view=Reasoning&{THOUGHTS}&part=Cases": MARK,
    f"/run?view=Reasoning&{THOUGHTS}&part=Saved+cases&set={quote(hostile.PAYLOADS[28])}": MARK,
    f"/run?view=Reasoning&{THOUGHTS}&part=Verdicts&trajectory=8": MARK,
    f"/run?view=Reasoning&{THOUGHTS}&part=Judges": "final judgment", "/benchmarks?item=q10": MARK,
    "/methods?view=Paper": "figure by figure",
    f"/methods?view=Paper&beside=Chosen+runs&runs={hostile.RUN},{hostile.PLAYED}&figure=weak-dynamics": MARK,
    "/new_run?section=Data": "chains-exgrpo", "/methods?view=Studies": "missing", "/system": "Runs root",
    "/system?view=Audit+log": MARK,
}  # fmt: skip
"""Addresses, each with a text that its page shows: a hostile one wherever the page shows texts of others."""
SHOWS = "text => document.querySelector('[data-testid=stMain]').textContent.includes(text)"
LOOK = (Path(__file__).parent / "look.js").read_text(encoding="utf-8")
CLI = CliRunner(env={"NO_COLOR": "1", "COLUMNS": "200"})
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
COMMANDS = (
    "runs --all", f"show {hostile.RUN}", f"logs {hostile.RUN}", f"query trajectories {hostile.PLAYED}",
    f"query trajectory {hostile.PLAYED} 1", "query marks", "query scores", "query journal",
    f"query candidates {hostile.PLAYED}", f"query verdicts {hostile.THOUGHTS}", f"case find {hostile.THOUGHTS}",
)  # fmt: skip


@pytest.fixture(scope="module")
def runs_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("hostile") / "runs"
    with pytest.MonkeyPatch.context() as monkeypatch:
        hostile.build(root, monkeypatch)
    return root


@pytest.fixture(scope="module")
def hostile_workbench(runs_root):
    served = web_server.start(runs_root)
    yield served
    served.stop()


@pytest.fixture(scope="module")
def signed_in(browser, hostile_workbench):
    context = browser.new_context(viewport={"width": 1440, "height": 2400})
    watched = Watched(context.new_page(), hostile_workbench.origin)
    enter(watched.page, hostile_workbench.link)
    watched.page.get_by_test_id("stApp").wait_for(timeout=60_000)
    yield watched
    context.close()


def tabs_of(path):
    chosen = parse_qs(urlsplit(path).query)
    return [name for key in ("view", "part", "section") for name in chosen.get(key, [])]


@pytest.mark.parametrize("words", COMMANDS)
def test_no_command_prints_what_a_terminal_obeys(runs_root, words):
    result = CLI.invoke(app, [*words.split(), "--runs-root", str(runs_root)])
    assert result.exit_code == 0, result.output
    assert OBEYED.findall(result.output) == []


def test_exported_tables_hold_no_formula_markup_or_control_character():
    rows = [{"text": text, text: 1} for text in hostile.PAYLOADS]
    lines = [row[0] for row in csv.reader(io.StringIO(as_csv([{"text": text} for text in hostile.PAYLOADS])))]
    assert [line for line in lines if line.startswith(("=", "+", "-", "@", "\t", "\r"))] == []
    for written in (as_csv(rows), as_markdown(rows), as_latex(rows)):
        assert OBEYED.findall(written) == []
    assert re.findall(r"(?<!\\)[<\[]", as_markdown(rows)) == []
    assert re.findall(r"\\(href|url|def|input|includegraphics)\b", as_latex(rows)) == []
    assert escape_control_characters("=1") == "=1"


@pytest.mark.browser
@pytest.mark.parametrize(("path", "text"), PAGES.items(), ids=range(len(PAGES)))
def test_hostile_texts_are_shown_and_inert(signed_in, hostile_workbench, path, text):
    page = signed_in.page
    signed_in.errors.clear()
    page.goto(hostile_workbench.origin + path)
    page.locator("[data-testid=stMain] [data-testid=stVerticalBlock]").first.wait_for(timeout=60_000)
    page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for(timeout=60_000)
    page.wait_for_function(SHOWS, arg=text, timeout=60_000)
    page.wait_for_timeout(300)
    assert page.get_by_text("This page failed").count() == 0
    for tab in tabs_of(path):
        page.get_by_role("tab", name=tab, exact=True, selected=True).wait_for()
    seen_by_browser = page.evaluate(LOOK)
    assert {what: parts for what, parts in seen_by_browser.items() if parts} == {}
    assert [text for text in signed_in.errors if "WebSocket" not in text] == []


@pytest.mark.browser
@pytest.mark.parametrize(
    ("html", "what"),
    [
        ("<img class=pwned src=x>", "marked"), ("<a href='http://evil.example'>x</a>", "outside"),
        ("<a href='javascript:alert(1)'>x</a>", "outside"), ("<p onclick='alert(1)'>x</p>", "handlers"),
        ("<strong>pwned-md</strong>", "rendered"), ("<span style='color:red'>pwned-md</span>", "coloured"),
        ("<p>a\u202eb</p>", "controls"), ("<script>window.pwned = 1</script>", "ran"),
    ],
)  # fmt: skip
def test_a_page_that_obeys_a_text_is_noticed(browser, html, what):
    page = browser.new_page()
    page.set_content(html)
    assert page.evaluate(LOOK)[what]
    page.close()
