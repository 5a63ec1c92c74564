import io
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exgrpo.jobs.actions import import_process
from exgrpo.jobs.actions.import_process import import_in_process, preview_import, recognise
from exgrpo.jobs.runs.rollout_formats.formats import UnknownRolloutsError
from tests.jobs.runs.rollout_formats.test_verl_dumps import line

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(autouse=True)
def short_silence(monkeypatch):
    monkeypatch.setattr(import_process, "SILENT_SECONDS", 12.0)


def torch_file(samples: bytes) -> bytes:
    """A file as `torch.save` writes it, of a mapping with a rollout's number and samples, pickled by hand."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr(
            "archive/data.pkl", b"\x80\x02}(X\x0a\x00\x00\x00rollout_idK\x01X\x07\x00\x00\x00samples" + samples + b"u."
        )
    return written.getvalue()


def good_samples() -> bytes:
    made = pickle.dumps([{"prompt": "1+1", "response": "2", "reward": 1.0, "status": "completed"}], 2)
    return made[2:-1]


def tower(num_floors: int = 64) -> bytes:
    """A tuple in which each level holds the one below twice, as a dictionary's key: its hash takes 2**64 steps."""
    return b"]})" + num_floors * b"2\x86" + b"K\x01sa"


def fifo(path: Path) -> None:
    os.mkfifo(path)


def dangling(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def loop(path: Path) -> None:
    path.symlink_to(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


def parquet(path: Path, cell: str, num_rows: int) -> None:
    """A table whose rows all have the same cell, which the file has once."""
    indices = pa.array([0] * num_rows, pa.int32())
    columns = {
        name: pa.array([value])
        for name, value in {"prompt": "1+1", "completion": cell, "reward": 1.0, "step": 1}.items()
    }
    table = pa.table({name: pa.DictionaryArray.from_arrays(indices, values) for name, values in columns.items()})
    pq.write_table(table, path, compression="zstd", store_schema=False, dictionary_pagesize_limit=1 << 30)


ODD = (fifo, dangling, loop, device, unix_socket)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_what_is_no_plain_file_hides_no_good_one_wherever_it_sorts(tmp_path, monkeypatch, suffix):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / "1.jsonl").write_text(line(1, 0, 1.0) + line(1, 1, 0.0))
    for number, make in enumerate(ODD):
        for place in (f"0{number}", f"2{number}"):
            make(folder / f"{place}{suffix}")
    imported = import_in_process(tmp_path / "runs", folder)
    assert imported.num_rollouts == 2
    assert imported.bad.num == (2 * len(ODD) if suffix == ".jsonl" else 0)
    assert {*recognise([folder], None)} == {folder}


@pytest.mark.parametrize("make", [fifo, loop, device])
def test_what_is_no_plain_file_alone_is_refused_at_once(tmp_path, make):
    make(tmp_path / "1.jsonl")
    began_at = time.monotonic()
    with pytest.raises((UnknownRolloutsError, import_process.UserError)):
        import_in_process(tmp_path / "runs", tmp_path / "1.jsonl" if make is not loop else tmp_path)
    assert time.monotonic() - began_at < 60


def test_a_pickle_whose_hash_never_ends_is_left_out_and_the_others_are_read(tmp_path):
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / "1.pt").write_bytes(torch_file(tower()))
    (folder / "2.pt").write_bytes(torch_file(good_samples()))
    imported = import_in_process(tmp_path / "runs", folder)
    assert imported.num_rollouts == 1
    assert imported.bad.sentences == ["1.pt: could not be read within 12 seconds; it is left out."]


def test_a_small_table_that_holds_gigabytes_is_read_no_further(tmp_path):
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / "2.jsonl").write_text(line(1, 0, 1.0))
    parquet(folder / "1.parquet", "x" * (4 << 20), 6_000)
    assert (folder / "1.parquet").stat().st_size < 1 << 20
    with pytest.raises(import_process.UserError) as refused:
        import_in_process(tmp_path / "runs", folder / "1.parquet")
    assert "1.parquet" in str(refused.value)
    assert sum(path.stat().st_size for path in (tmp_path / "runs").rglob("*")) < 1 << 30


@pytest.mark.parametrize(
    "body",
    [
        "import time\n    while True:\n        try: time.sleep(9)\n        except BaseException: pass",
        "import os\n    os._exit(0)",
        "import os, signal\n    os.kill(os.getpid(), signal.SIGSEGV)",
        "return [bytearray(1 << 20) for _ in range(1 << 20)]",
    ],
    ids=["deaf", "exits", "crashes", "takes all memory"],
)
def test_a_reading_that_ends_badly_on_one_file_goes_on_with_the_others(tmp_path, body):
    own = tmp_path / "own.py"
    good = "{'prompt': row['q'], 'response': 'x'}"
    own.write_text(f"def rule(row):\n    if row['q'] != 'bad':\n        return {good}\n    {body}\n")
    folder = tmp_path / "dump"
    folder.mkdir()
    for number, question in enumerate(("good", "bad", "good", "good")):
        (folder / f"{number}.jsonl").write_text(f'{{"q": "{question}"}}\n')
    imported = import_in_process(tmp_path / "runs", folder, own)
    assert (imported.num_rollouts, imported.bad.num) == (3, 1)
    assert imported.bad.sentences[0].startswith("1.jsonl")


def test_a_preview_of_metrics_names_them(tmp_path):
    (tmp_path / "wandb.csv").write_text("_step,loss,reward\n0,1.5,0.1\n")
    preview = preview_import(str(tmp_path / "wandb.csv"), "")
    assert (preview.questions, preview.lengths) == ((), ())
    assert preview.notice.endswith("There are no rollouts, but curves of loss, reward.")


def test_a_preview_of_what_never_ends_is_refused(tmp_path):
    (tmp_path / "1.pt").write_bytes(torch_file(tower()))
    with pytest.raises(import_process.UserError):
        preview_import(str(tmp_path), "")


@pytest.mark.parametrize("words", [("view", "--no-browser"), ("import", "--rollouts")], ids=lambda words: words[0])
def test_ctrl_c_ends_a_reading_that_never_ends(tmp_path, words):
    (tmp_path / "1.pt").write_bytes(torch_file(tower()))
    environment = dict(os.environ) | {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "EXGRPO_RUNS_ROOT": str(tmp_path / "runs"),
    }
    command = [sys.executable, "-m", "exgrpo.jobs.cli", *words, str(tmp_path / "1.pt")]
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        while len(named_by(tmp_path)) < 2:  # the command, and the process that reads for it
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(30)
    assert not named_by(tmp_path)


def named_by(path: Path) -> list[str]:
    """Return the processes whose environment names a path."""
    return [pid for pid in os.listdir("/proc") if pid.isdigit() and names(pid, str(path))]


def names(pid: str, text: str) -> bool:
    try:
        return text in Path("/proc", pid, "environ").read_text(errors="replace")
    except OSError:
        return False
