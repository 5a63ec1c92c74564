"""deploy/exgrpo.service under a systemd that is the first process of a container: a machine that is shut down."""

import json
import sys

import pytest

from exgrpo.jobs.runs.control import INTERRUPTED
from tests.deployment.image_files import REPOSITORY
from tests.images.project import wait

pytestmark = [pytest.mark.image, pytest.mark.slow, pytest.mark.timeout(3600)]

TOKEN = "a-token-for-the-tests-of-the-unit"


class Machine:
    """A container with systemd."""

    def __init__(self, podman) -> None:
        self._podman = podman

    def __call__(self, *words: object) -> str:
        return self._podman("exec", "machine", *words)

    def exgrpo(self, *words: object):
        line = ["exec", "--user=exgrpo", "--env=HOME=/tmp", "machine", "/srv/exgrpo/.venv/bin/exgrpo"]
        return json.loads(self._podman(*line, *words, "--runs-root=/srv/exgrpo/runs", "--json"))

    def attempts(self, run_id: str):
        return self.exgrpo("query", "attempts", run_id)

    def wait_for_step(self, run_id: str, step: int) -> None:
        wait(lambda: (self.exgrpo("runs")[0]["step"] or 0) >= step, f"step {step} of {run_id}")


@pytest.fixture
def machine(podman):
    podman.build(REPOSITORY / "deploy", "machine", "--file", REPOSITORY / "tests" / "images" / "service.Containerfile")
    podman("run", "--detach", "--name=machine", "--systemd=always", "machine")
    yield Machine(podman)
    logs = "cat /srv/exgrpo/runs/*/log.txt; journalctl --no-pager --unit=exgrpo"
    sys.stdout.write(podman("exec", "machine", "sh", "-c", logs))
    podman("rm", "--force", "--time=5", "--volumes", "machine")


def test_the_unit_interrupts_runs_as_it_ends_and_continues_them_as_it_starts(podman, machine):
    # Before it, a command leaves its run to a supervisor of its own, which no unit stops.
    supervisor = "/srv/exgrpo/runs/workbench/supervisor.json"
    wait(lambda: podman.ends_well("exec", "machine", "test", "-e", supervisor), "the unit's supervisor")
    words = ["train", "--preset", "chains-exgrpo", "--set", "num_steps=100000", "--set", "checkpoint_interval=100000"]
    run_id = machine.exgrpo(*words, "--detach")["run_id"]
    machine.wait_for_step(run_id, 2)
    machine("systemctl", "restart", "exgrpo")
    wait(lambda: len(machine.attempts(run_id)) == 2, "a second attempt")
    podman("stop", "--time=600", "machine")
    podman("start", "machine")
    wait(lambda: len(machine.attempts(run_id)) == 3, "a third attempt")
    ended = [(attempt["status"], attempt["status_reason"]) for attempt in machine.attempts(run_id)[:2]]
    assert ended == [("stopped", INTERRUPTED)] * 2
    assert machine("systemctl", "show", "exgrpo", "--property=Result") == "Result=success"
    assert TOKEN not in machine("journalctl", "--no-pager")
