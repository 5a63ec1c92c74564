"""The images' sizes, and the one with the pages alone."""

import json

import pytest

from tests.app import recorded
from tests.deployment.image_files import service
from tests.images.conftest import MAX_GB
from tests.images.project import wait

pytestmark = [pytest.mark.image, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("target", MAX_GB)
def test_an_image_without_cuda_is_small(podman, target):
    assert podman.size(f"exgrpo-{target}") <= MAX_GB[target]


def test_the_viewer_shows_runs_without_pytorch(podman, tmp_path):
    recorded.record_all(tmp_path)
    declared = service("workbench")
    assert (declared["read_only"], declared["cap_drop"]) == (True, ["ALL"])
    confined = ["--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--tmpfs=/tmp:mode=1777"]
    podman("run", "--detach", "--name=viewer", *confined, "exgrpo-viewer")
    try:
        podman("cp", f"{tmp_path}/.", "viewer:/srv/state/runs")
        wait(lambda: podman.ends_well("healthcheck", "run", "viewer"), "the pages")
        listed = json.loads(podman("exec", "viewer", "exgrpo", "runs", "--json"))
        assert {run["run_id"] for run in listed}
        assert not podman.ends_well("exec", "viewer", "python", "-c", "import torch")
    finally:
        podman("rm", "--force", "--time=5", "--volumes", "viewer")
