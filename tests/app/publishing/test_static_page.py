import errno
import logging
import os
import sys

import pytest

from exgrpo.app import settings
from exgrpo.app.publishing.__main__ import main
from exgrpo.app.publishing.static_page import write_page
from exgrpo.jobs.execution.supervisor.indexing import ingest_all
from exgrpo_core import recording

CONFIG = {
    "api_key": "sk-SECRET", "logger": {"WANDB_TOKEN": {"of": "SECRET"}, "max_tokens": 512},
    "data": ["/data/alice/train.parquet", "file:///data/alice/test.parquet"],
    "overrides": ["trainer.dir=/data/alice/my runs/one"], "keys": "https://example.org/a/b",
}  # fmt: skip


def test_a_page_has_no_secrets_and_no_folders_and_says_where_a_reward_is_unknown(tmp_path):
    run = recording.start("mine", CONFIG, tmp_path)
    run.log(
        1,
        {"loss": 1.0},
        trajectories=[{"prompt": "q", "response": "a"}, {"prompt": "q", "response": "b", "reward": 0.5}],
    )
    run.finish()
    ingest_all(tmp_path, None)
    settings.configure(settings.AppSettings(tmp_path))
    write_page(tmp_path / "page", [run.run_id])
    page = (tmp_path / "page" / "index.html").read_text()
    assert [word for word in ("SECRET", "alice", "nan,") if word in page] == []
    assert "Recorded metrics" in page
    assert ">loss" in page
    shown = ("train.parquet", "dir=one", "512", "https://example.org/a/b", "reward unknown", "reward 0.5")
    assert [word for word in shown if word not in page] == []


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.ENOSPC])
@pytest.mark.parametrize("num_written", [0, 1])
def test_a_page_that_has_no_room_is_one_sentence_and_leaves_no_folder(
    tmp_path, monkeypatch, capsys, number, num_written
):
    run = recording.start("mine", CONFIG, tmp_path)
    run.log(1, {"loss": 1.0})
    run.finish()
    ingest_all(tmp_path, None)
    fsync, files = os.fsync, iter(range(9))

    def fill(file):
        if next(files) // 2 == num_written:  # the content and the name of each file
            raise OSError(number, os.strerror(number))
        fsync(file)

    monkeypatch.setattr("exgrpo_core.durable_files.os.fsync", fill)
    monkeypatch.setattr(sys, "argv", ["publishing", "--runs-root", str(tmp_path), str(tmp_path / "page"), run.run_id])
    mask = os.umask(0o022)
    try:
        assert main() == 2
    finally:
        os.umask(mask)
        logging.disable(logging.NOTSET)
    why = f"{os.strerror(number)}; free some space or inodes there, or choose another folder"
    assert capsys.readouterr().err == f"{tmp_path / 'page'}: cannot be written ({why}).\n"
    assert not (tmp_path / "page").exists()


def test_a_conversation_is_published_turn_by_turn_and_all_of_its_text_is_escaped(tmp_path):
    run = recording.start("mine", {}, tmp_path)
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look", "arguments": '{"at": 1}'}}]},
        {"role": "tool", "content": "<script>sun</script>"},
        {"role": "assistant", "content": "Sunny."},
    ]
    run.log(1, trajectories=[{"messages": messages, "reward": 1.0}])
    run.finish()
    ingest_all(tmp_path, None)
    settings.configure(settings.AppSettings(tmp_path))
    write_page(tmp_path / "page", [run.run_id])
    page = (tmp_path / "page" / "index.html").read_text()
    assert "<b>Turn 2</b>" in page
    assert "tool call look" in page
    assert "&lt;script&gt;sun" in page
    assert "<script>sun" not in page


@pytest.mark.parametrize("missing", ["tokenizers", "torch", "transformers"])
def test_a_page_is_published_without_the_packages_of_training(played_runs, tmp_path, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    run_id = next(path.name for path in sorted(played_runs.iterdir()) if (path / "run.json").exists())
    write_page(tmp_path / "page", [run_id])
    assert (tmp_path / "page" / "index.html").stat().st_size > 1000
