"""All services of compose.yaml in containers: Caddy with TLS, the workbench, PostgreSQL."""

import json
import re

import pytest

from exgrpo.jobs.runs.control import INTERRUPTED
from tests.browser.clicks import enter
from tests.browser.conftest import browser  # noqa: F401 - a fixture
from tests.deployment.image_files import ENVIRONMENT_FILE, HOST_NAME, TOKEN
from tests.images.project import Project, wait
from tests.tools import require_tool

pytestmark = [pytest.mark.image, pytest.mark.slow, pytest.mark.timeout(3600)]

ADDRESS = f"https://{HOST_NAME}"
LONG = "num_steps=100000"
QUESTION = {"problem": "Q5a+4b*5c*5d-2e-7:", "answer": "6"}


@pytest.fixture(scope="module")
def project(podman_with_services):
    project = Project(podman_with_services, podman_with_services.folder / "project")
    project.write()
    try:
        project.up()
        yield project
    finally:
        project.compose("down", "--timeout", "5", "--volumes")


@pytest.fixture(scope="module")
def trained(project) -> str:
    run_id = project.train("num_steps=3")
    wait(lambda: project.run(run_id)["status"] == "finished", run_id)
    return run_id


def test_a_service_can_do_nothing_but_its_work(project):
    program = r"id -u; sed -n 's/^Cap[A-Z][a-z]*:\s*//p; s/^NoNewPrivs:\s*//p' /proc/self/status"
    write = "touch /srv/exgrpo/new || echo refused"
    user, *rest = project.podman("exec", project.container("workbench"), "sh", "-c", f"{program}; {write}").split()
    assert (user, set(rest)) == ("1000", {"0" * 16, "1", "refused"})


def test_a_run_is_launched_from_the_page(project, browser):  # noqa: F811 - a fixture
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.set_default_timeout(180_000)
    enter(page, f"{ADDRESS}/?token={TOKEN}")
    page.goto(f"{ADDRESS}/new_run?section=Run")
    steps = page.get_by_label("Number of steps", exact=True)
    steps.fill("3")
    steps.press("Enter")
    page.get_by_text("--set num_steps=3").first.wait_for()
    page.get_by_role("button", name="Launch run").click()
    page.wait_for_url(re.compile(r"/run\?run="))
    run_id = re.search(r"run=([\w-]+)", page.url)[1]
    wait(lambda: project.run(run_id)["status"] == "finished", run_id)
    assert project.run(run_id)["step"] == 3
    context.close()


def test_an_evaluation_scores_the_run_s_checkpoint(project, trained):
    file = project.podman.folder / "questions.jsonl"
    file.write_text(json.dumps(QUESTION) + "\n", encoding="utf-8")
    project.podman("cp", file, f"{project.container('workbench')}:/srv/state/questions.jsonl")
    words = ["eval", f"{trained}@last", "-b", "chains=/srv/state/questions.jsonl", "--num-samples", "2"]
    score = project.read(*words)["scores"][0]
    assert (score["source_run_id"], score["source_step"]) == (trained, 3)
    assert sum(score["outcomes"].values()) == 2


def test_a_stop_in_the_middle_of_training_leaves_a_checkpoint_and_the_next_start_continues(project):
    run_id = project.train(LONG, "checkpoint_interval=100000")
    project.wait_for_step(run_id, 3)
    project.compose("stop", "workbench")
    project.up()
    wait(lambda: len(project.read("query", "attempts", run_id)) == 2, "a second attempt")
    project.wait_for_step(run_id, 6)
    first, second = project.read("query", "attempts", run_id)
    assert (first["status"], first["status_reason"]) == ("stopped", INTERRUPTED)
    assert second["resumed_from_step"] >= 3
    _shows_every_step_once(project, run_id)
    project.exgrpo("stop", run_id)
    wait(lambda: project.run(run_id)["status"] == "stopped", "its end")


def test_a_kill_loses_the_steps_since_the_newest_checkpoint_and_no_more(project):
    run_id = project.train(LONG, "checkpoint_interval=4")
    project.wait_for_step(run_id, 6)
    project.podman("kill", project.container("workbench"))
    project.compose("start", "workbench")
    wait(lambda: project.is_healthy("workbench"), "the workbench")
    wait(lambda: project.run(run_id)["status"] == "lost", "the loss")
    reached, kept = project.run(run_id)["step"], project.checkpoints(run_id)
    assert 0 <= reached - kept[-1] <= 4
    project.exgrpo("resume", run_id)
    project.wait_for_step(run_id, reached + 1)
    assert project.read("query", "attempts", run_id)[-1]["resumed_from_step"] == kept[-1]
    _shows_every_step_once(project, run_id)
    project.exgrpo("stop", run_id)
    wait(lambda: project.run(run_id)["status"] == "stopped", "its end")


def test_a_backup_is_restored_into_empty_volumes(project, trained):
    if not project.podman.ends_well(
        "run", "--rm", "exgrpo-workbench", "python", "-c", "from tarfile import data_filter"
    ):
        pytest.skip("Python 3.11.2, which Debian 12 has, unpacks no archive: run the tests with 3.11.4 or newer.")
    before = project.read("query", "scores"), project.run(trained)
    project.exgrpo("backup", "/srv/state/backup.tar")
    project.podman("cp", f"{project.container('workbench')}:/srv/state/backup.tar", project.folder)
    project.compose("down", "--volumes")

    project.compose("up", "--detach", "--no-build", "database")
    wait(lambda: project.is_healthy("database"), "the database")
    unpack = "cat >/srv/state/b.tar && exgrpo backup --restore /srv/state/b.tar && rm /srv/state/b.tar"
    project.shell(f"run --rm --no-deps -T workbench sh -c '{unpack}' <backup.tar")
    project.up()
    assert (project.read("query", "scores"), project.run(trained)) == before


def test_the_image_before_is_replaced_while_a_run_goes_on(project):
    podman, folder = project.podman, project.podman.folder / "before"
    folder.mkdir()
    git = require_tool("git")
    podman.run("sh", "-c", f"{git} archive HEAD~1 | tar -x -C {folder}")
    (folder / "Dockerfile").write_text(
        "FROM exgrpo-workbench\nUSER root\nRUN rm -rf app db jobs exgrpo_core\nCOPY . .\nUSER 1000:1000\n"
    )
    podman("tag", "exgrpo-workbench", "exgrpo-workbench:new")
    project.compose("down")
    try:
        podman.build(folder, "exgrpo-workbench")
        project.up()
        run_id = project.train(LONG)
        project.wait_for_step(run_id, 2)
        project.compose("down")
    finally:
        podman("tag", "exgrpo-workbench:new", "exgrpo-workbench")
    project.up()
    wait(lambda: len(project.read("query", "attempts", run_id)) == 2, "a second attempt")
    assert [attempt["status"] for attempt in project.read("query", "attempts", run_id)][:1] == ["stopped"]
    assert not [value for value in ENVIRONMENT_FILE.values() if value != HOST_NAME and value in project.logs()]


def _shows_every_step_once(project: Project, run_id: str) -> None:
    steps = [point[0] for point in project.read("query", "curves", run_id, "-m", "reward/mean")["reward/mean"]]
    assert steps == list(range(1, len(steps) + 1))
