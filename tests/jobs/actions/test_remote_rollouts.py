"""Rollouts at addresses, from a server on this machine that answers as the hub does."""

import json
import os
import subprocess
import sys

import pytest

from exgrpo.jobs.actions import view_roots
from exgrpo.jobs.actions.view_roots import copy_rollouts, is_address
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.rollout_formats.formats import MissingPackageError, UnknownRolloutsError
from tests.http_server import Answer, answering

ROWS = '{"input": "2?", "output": "2", "score": 1.0}\n{"input": "3?", "output": "2", "score": 0.0}\n'
COMMIT = "a" * 40


def hub(asked):
    path, about = asked.path.partition("?")[0], (("Content-Type", "application/json"),)
    if "/resolve/" in path:
        facts = (("ETag", '"e"'), ("X-Repo-Commit", COMMIT), ("Content-Type", "text/plain"))
        return Answer(ROWS, 200, facts)
    if "/tree/" in path:
        names = {"rollouts": "directory", "rollouts/3.jsonl": "file", "rollouts/12.jsonl": "file"}
        inner = path.partition(f"/tree/{'main'}")[2].strip("/") or path.partition(COMMIT)[2].strip("/")
        found = [{"type": kind, "path": name, "size": len(ROWS), "oid": name} for name, kind in names.items()
                 if (name.startswith(f"{inner}/") if inner else "/" not in name)]  # fmt: skip
        return Answer(json.dumps(found), 200 if found else 404, about)
    if "paths-info" in path:
        return Answer(json.dumps([{"type": "directory", "path": "rollouts", "oid": "x"}]), 200, about)
    if path.startswith("/api/datasets/me/sums"):
        return Answer(json.dumps({"id": "me/sums", "sha": COMMIT, "siblings": [], "private": False}), 200, about)
    return Answer("{}", 404, (*about, ("X-Error-Code", "RepoNotFound")))


def copied(address, origin, tmp_path):
    code = (
        f"from exgrpo.jobs.actions.view_roots import copy_rollouts as copy\n"
        f"try:\n    print(copy({address!r}))\nexcept Exception as error:\n    print(error)"
    )
    return printed(["-c", code], origin, tmp_path)


def printed(arguments, origin, tmp_path):
    own = {
        "HF_ENDPOINT": origin, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "hf"), "XDG_CACHE_HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, *arguments], env=os.environ | own, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_folder_of_the_hub_is_copied(tmp_path):
    with answering(hub) as origin:
        folder = copied("hf://datasets/me/sums/rollouts", origin, tmp_path)
        assert sorted(os.listdir(folder)) == ["12.jsonl", "3.jsonl"]
        with open(f"{folder}/3.jsonl") as opened:
            assert opened.read() == ROWS
        missing = copied("hf://datasets/me/other/rollouts", origin, tmp_path)
    assert missing.startswith("hf://datasets/me/other/rollouts: cannot be read (")


def test_an_earlier_copy_stays_until_a_new_one_is_whole(tmp_path):
    address = "hf://datasets/me/sums/rollouts"
    with answering(hub) as origin:
        folder = copied(address, origin, tmp_path)
    with answering(lambda asked: Answer("", 404) if "/resolve/" in asked.path else hub(asked)) as origin:
        assert copied(address, origin, tmp_path).startswith(f"{address}: cannot be read (")
    assert sorted(os.listdir(folder)) == ["12.jsonl", "3.jsonl"]
    assert len(os.listdir(tmp_path / "exgrpo" / "copies")) == 1
    with answering(hub) as origin:
        assert copied(address, origin, tmp_path) == folder


def test_an_import_from_an_address_names_it_and_keeps_no_copy(tmp_path):
    address, root = "hf://datasets/me/sums/rollouts", tmp_path / "runs"
    command = ["-m", "exgrpo.jobs.cli", "import", address, "--rollouts", "--runs-root", str(root)]
    with answering(hub) as origin:
        run_id = printed(command, origin, tmp_path).splitlines()[-1]
    assert RunDirectory.open(root, run_id).job_spec().config["source"] == address
    assert [path for path in tmp_path.rglob("12.jsonl") if not path.is_relative_to(tmp_path / "hf")] == []


def test_addresses_that_are_not_read_are_refused_with_what_to_do(monkeypatch):
    assert [is_address(text) for text in ("hf://datasets/a/b", "runs", "/a://b", "C:\\rollouts")] == [
        True,
        *[False] * 3,
    ]
    with pytest.raises(UnknownRolloutsError, match="hf:// or s3://"):
        copy_rollouts("http://169.254.169.254/latest")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingPackageError, match="pip install fsspec s3fs"):
        view_roots.copy_rollouts("s3://bucket/rollouts")
