"""No cut and no changed byte of recorded answers is silent: `exgrpo verify`, the run's page and a resume say it."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from db.queries.runs import get_run
from jobs.actions.verification import verify_run
from jobs.cli.main import app
from jobs.evaluation.answer_log import AnswerLog
from jobs.evaluation.recorded_answers import FOLDER, find_answer_damage, find_answers
from jobs.runs.attempts import write_outcome
from jobs.runs.directory import RunDirectory
from jobs.runs.status import RunStatus
from jobs.specs.evaluation import BenchmarkChoice, EvalModelSpec, EvalSpec
from jobs.supervisor.open_index import open_fresh_index
from tests.jobs.analysis.recorded_samples import append

NAME = "sums-0001.jsonl"
NEW_FIELDS = ({"seq", "crc"}, {"seq", "crc", "answer_kind"}, {"seq", "crc", "answer_kind", "question", "gold"})


@pytest.fixture
def run(tmp_path):
    spec = EvalSpec(model=EvalModelSpec(source="m"), benchmarks=(BenchmarkChoice(name="sums", source="sums.jsonl"),))
    run = RunDirectory.create(tmp_path / "runs", spec)
    run.claim_attempt()
    for number in range(3):
        append(run.path, f"q{number}", [("4", -0.5), ("5", None)])
    return run


def damaged_ways(content):
    """Return the file cut at every byte, and with every byte changed."""
    cuts = [content[:length] for length in range(len(content))]
    flips = [content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :] for at in range(len(content))]
    return cuts + flips


@pytest.mark.parametrize("suffix", [".jsonl", ".count"])
def test_every_cut_and_every_changed_byte_is_noticed_and_no_changed_answer_is_read(run, suffix):
    path = (run.path / FOLDER / NAME).with_suffix(suffix)
    whole = AnswerLog(run.path, "sums", 2).read()
    assert find_answer_damage(run.path) == []
    for content in damaged_ways(path.read_bytes()):
        path.write_bytes(content)
        assert all(whole[name] == answered for name, answered in AnswerLog(run.path, "sums", 2).read().items())
        (first, *_) = find_answer_damage(run.path)
        assert first.startswith("evaluation/sums-0001."), content


@pytest.mark.parametrize("left", ["lines", "count", "middle"])
def test_missing_lines_are_numbered(run, left):
    path = run.path / FOLDER / NAME
    lines = path.read_bytes().splitlines(keepends=True)
    if left == "count":
        path.unlink()
    else:
        path.write_bytes(b"".join(lines[:2] if left == "lines" else [lines[0], lines[2]]))
    sentences = {
        "lines": f"evaluation/{NAME}: line 3 is missing at the end.",
        "count": f"evaluation/{NAME}: is missing.",
        "middle": f"evaluation/{NAME}: line 2 is missing.",
    }
    assert find_answer_damage(run.path) == [sentences[left]]


@pytest.mark.parametrize("missing", NEW_FIELDS)
def test_files_of_older_versions_are_read_and_count_as_whole(run, missing):
    path = run.path / FOLDER / NAME
    records = [json.loads(line) for line in path.read_text().splitlines()]
    old = [{name: record[name] for name in record if name not in missing} for record in records]
    path.write_text("".join(json.dumps(record) + "\n" for record in old))
    path.with_suffix(".count").unlink()
    assert len(AnswerLog(run.path, "sums", 2).read()) == 3
    assert find_answers(run.path, "sums", "q1").answers[0].text == "so \\boxed{4}"
    assert find_answer_damage(run.path) == []


def test_damage_is_said_by_verify_on_the_run_s_page_and_on_resume(run, caplog):
    path = run.path / FOLDER / NAME
    path.write_bytes(path.read_bytes().replace(b"boxed{5}", b"boxed{6}", 1))
    write_outcome(run.attempt_path(1), RunStatus.FINISHED, "")
    sentence = f"evaluation/{NAME}: line 1 is damaged and was skipped."
    assert [damage.what for damage in verify_run(run)] == [sentence]
    runs_root = str(run.path.parent)
    assert sentence in CliRunner(env={"COLUMNS": "200"}).invoke(app, ["verify", "--runs-root", runs_root]).output
    with open_fresh_index(run.path.parent, None) as database:
        assert sentence in get_run(database, run.run_id).faults
    assert set(AnswerLog(run.path, "sums", 2).read()) == {"q1", "q2"}
    assert "line 1 is damaged and was skipped. Questions without answers are asked again." in caplog.text


def test_next_attempt_writes_a_file_of_its_own_with_its_numbers(run):
    append(run.path, "q9", [("4", None)], attempt=2)
    shutil.copytree(run.path / FOLDER, run.path / "before")
    append(run.path, "q10", [("4", None)], attempt=2)
    lines = (run.path / FOLDER / "sums-0002.jsonl").read_text().splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [1, 2]
    assert (run.path / FOLDER / NAME).read_bytes() == (run.path / "before" / NAME).read_bytes()
    assert find_answer_damage(run.path) == []
