"""The workbench where only the state folder and the temporary one can be written, as in a container."""

import os
import shutil
import subprocess

import httpx2
import pytest

from tests.deployment.composed import composed_workbench
from tests.deployment.image_files import REPOSITORY, stage

pytestmark = pytest.mark.slow

_SEAL = (
    'mount --bind "$0" "$0" && mount -t tmpfs none "$1" && mount -o remount,bind,ro / && shift && '
    'if touch "$0/../outside" 2>/dev/null; then echo "the root is not read-only" >&2; exit 1; fi; exec "$@"'
)


@pytest.fixture
def sealed(tmp_path):
    """The state folder, a temporary one, and the command before which everything else becomes read-only."""
    state, temporary = tmp_path / "state", tmp_path / "tmp"
    temporary.mkdir()
    command = ["make", "-C", str(REPOSITORY), "state-folders", f"STATE={state}", f"OWNER={os.getuid()}"]
    subprocess.run(command, check=True, capture_output=True)
    unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    before = (*unshare, "sh", "-c", _SEAL, str(state), str(temporary))
    if shutil.which("unshare") is None or subprocess.run([*before, "true"], check=False).returncode:
        pytest.skip("No file system can be made read-only here.")
    return state, temporary, before


def test_the_workbench_starts_and_answers_with_a_read_only_root(sealed):
    state, temporary, before = sealed
    (instruction,) = [rest for word, rest in stage("workbench") if word == "ENV"]
    variables = dict(word.split("=", 1) for word in instruction.replace("/srv/state", str(state)).split())
    del variables["PATH"]
    with composed_workbench(state / "runs", before, TMPDIR=str(temporary), **variables) as workbench:
        address = f"http://127.0.0.1:{workbench.port}/_stcore/health"
        assert httpx2.get(address, trust_env=False, timeout=60).text == "ok"
        assert (state / "runs" / "workbench" / "workbench.json").is_file()
