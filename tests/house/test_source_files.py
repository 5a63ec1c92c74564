import re
import statistics
from pathlib import Path

import pytest

from tests.house.tracked import read, source_files, tracked_files

MAX_LINES = 400
MAX_MEDIAN_LINES = 150
FORBIDDEN_IN_SOURCE = re.compile(
    r"\b(TODO|FIXME|XXX|NotImplementedError|breakpoint\(\))|except:|unsafe_allow_html=True|shell=True|pickle\.load"
    r"|weights_only=False|trust_remote_code=True"
)
MACHINE_PATH = re.compile(r"(^|[^A-Za-z0-9_.$}-])/(work|farm|root|home|opt|mnt)/")
REGISTRY_HOST = re.compile(r"pypi\.org|pythonhosted\.org|download\.pytorch\.org|ghcr\.io|docker\.io|quay\.io")
VAGUE_NAMES = {"utils", "util", "helpers", "common", "manager", "misc"}
OWN_FILE = Path("tests/house/test_source_files.py")


def text_files():
    return [
        path
        for path in tracked_files()
        if path != OWN_FILE
        and path.suffix
        not in {".png", ".webp", ".parquet", ".db", ".gz", ".zst", ".safetensors", ".bin", ".pt", ".eval"}
    ]


def lines_matching(pattern, paths):
    return [
        f"{path}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(read(path).splitlines(), start=1)
        if pattern.search(line)
    ]


def test_no_source_file_is_over_400_lines_and_the_median_is_small():
    lengths = {path: len(read(path).splitlines()) for path in source_files()}
    too_long = {str(path): length for path, length in lengths.items() if length > MAX_LINES}
    assert not too_long
    assert statistics.median(length for length in lengths.values() if length) <= MAX_MEDIAN_LINES
    assert lengths[Path("exgrpo_core/algorithm.py")] <= 120, "Algorithm 1 fits on two screens"


@pytest.mark.parametrize(
    ("pattern", "files"),
    [(FORBIDDEN_IN_SOURCE, source_files), (MACHINE_PATH, text_files), (REGISTRY_HOST, text_files)],
)
def test_no_file_has_unfinished_or_unsafe_code_a_path_of_one_machine_or_a_registry_host(pattern, files):
    assert not lines_matching(pattern, files())


def test_no_module_has_a_vague_name():
    assert not [path for path in source_files() if VAGUE_NAMES & {*path.parts[:-1], path.stem}]


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (MACHINE_PATH, "runs_root: /" + "home/someone/runs"),
        (REGISTRY_HOST, "pip install --index-url https://pypi" + ".org/simple"),
        (FORBIDDEN_IN_SOURCE, "subprocess.run(command, shell=True)"),
    ],
)
def test_the_patterns_catch_what_they_are_for(pattern, line):
    assert pattern.search(line)


def test_constraints_pin_every_package_exactly_and_from_no_place():
    lines = read(Path("requirements/constraints.txt")).split()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.]*", line)] == []
    assert lines == sorted(lines, key=str.lower)
    assert "torch==2.13.0" in lines


@pytest.mark.parametrize("folder", ["jobs", "db", "app/components"])
def test_every_file_is_in_a_room(folder):
    loose = [path.name for path in source_files() if str(path.parent) == folder and path.name != "__init__.py"]
    assert loose == []
