import re
import subprocess
import sys

import pytest

from deploy.licences import direct_dependencies, normal
from tests.deployment.image_files import REPOSITORY

LOCKS = {
    "main.txt": ("requirements/constraints.txt", ("train", "postgresql", "oidc")),
    "viewer.txt": ("requirements/constraints.txt", ("oidc", "postgresql")),
    "verl-cpu.txt": ("requirements/constraints-verl-cpu.txt", ("train", "postgresql", "verl")),
}
BLOCK = re.compile(r"(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[^\s;]+)(?P<marker> ; [^\\]+)? \\?(?P<hashes>.*)")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
BUILT_FOR_A_MACHINE = re.compile(r"torch$|triton$|nvidia-(?!ml-py$)|cuda-")


def blocks(lock):
    text = (REPOSITORY / "requirements" / "locks" / lock).read_text(encoding="utf-8")
    joined = text.replace("\\\n    ", "").splitlines()
    matches = [BLOCK.fullmatch(line) for line in joined]
    assert all(matches), [line for line, match in zip(joined, matches, strict=True) if not match][:1]
    return {match["name"]: match for match in matches}


def pins(path):
    lines = (REPOSITORY / path).read_text(encoding="utf-8").splitlines()
    return {normal(name): version for name, _, version in (line.partition("==") for line in lines if "==" in line)}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_has_hashes_and_comes_from_no_named_place(lock):
    for block in blocks(lock).values():
        words = block["hashes"].split()
        assert words
        assert all(HASH.fullmatch(word) for word in words)


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_hold_the_versions_of_the_constraints(lock):
    constraints = pins(LOCKS[lock][0])
    locked = {name: block for name, block in blocks(lock).items() if not block["marker"] or name in constraints}
    assert {name: block["version"] for name, block in locked.items() if name != "setuptools"} == {
        name: constraints.get(name) for name in locked if name != "setuptools"
    }


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_hold_every_direct_dependency_but_what_is_built_for_a_machine(lock):
    names = set(blocks(lock))
    assert direct_dependencies(*LOCKS[lock][1]) - names <= {"torch"}
    assert not [name for name in names if BUILT_FOR_A_MACHINE.match(name)]


def test_pip_takes_the_lock_with_hashes_and_it_is_what_the_tests_run_with():
    """Nothing is downloaded: every locked version must be installed already."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--require-hashes", "--no-deps"]
    lock = REPOSITORY / "requirements" / "locks" / "main.txt"
    finished = subprocess.run([*command, "-r", str(lock)], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert "Would install" not in finished.stdout
