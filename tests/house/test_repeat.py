"""`make test-repeat` finds a test that fails now and then, and keeps its output."""

import os
from pathlib import Path

from tests import repeat

NOW_AND_THEN = """
import os, psutil
def test_right():
    pass
def test_needs_a_free_core():
    processes = [process.info for process in psutil.process_iter(["ppid", "cmdline"])]
    codes = [it["cmdline"][2] for it in processes if it["ppid"] == os.getppid() and "-c" in (it["cmdline"] or [])]
    loops = [code for code in codes if "while True:" in code]
    print("loops:", len(loops), "writes:", sum("fsync" in code for code in loops))
    assert not loops
"""


def test_rate_of_a_test_that_fails_under_load_is_printed_and_its_output_kept(tmp_path, capsys):
    Path(tmp_path / "test_now_and_then.py").write_text(NOW_AND_THEN)
    folder = tmp_path / "kept"
    assert repeat.main(2, ["-q", "-p", "no:cacheprovider", str(tmp_path)], folder) == 1
    printed = capsys.readouterr().out
    assert [line[:8] for line in printed.splitlines() if line.endswith("::test_needs_a_free_core")] == ["1 of 2: "]
    assert "1 of 2 rounds failed" in printed
    assert sorted(path.name for path in folder.iterdir()) == ["round-2.txt", "round-2.xml"]
    assert f"loops: {(os.cpu_count() or 1) + 1} writes: 1" in (folder / "round-2.txt").read_text()


def test_order_of_files_follows_the_seed_alone(monkeypatch):
    class Item:
        def __init__(self, path: str) -> None:
            self.path = Path(path)

    orders = []
    for seed in ("1", "1", "2"):
        monkeypatch.setenv(repeat.SEED_VARIABLE, seed)
        items = [Item(f"test_{number}.py") for number in range(9)]
        repeat.pytest_collection_modifyitems(items)
        orders.append([item.path.name for item in items])
    assert orders[0] == orders[1] != orders[2]
