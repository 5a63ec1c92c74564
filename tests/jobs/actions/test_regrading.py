import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from db.queries.benchmarks import list_scores
from exgrpo_core.checksums import seal, unseal
from jobs.actions.adoption import adopt
from jobs.actions.regrading import regrade
from jobs.actions.verification import verify_run
from jobs.cli.main import app
from jobs.evaluation import loop, results
from jobs.evaluation.loop import run_evaluation
from jobs.evaluation.regrades import read_regradings, regrading_path, write_regrading
from jobs.grading.outcomes import Outcome
from jobs.grading.pool import AnswerGrader
from jobs.grading.schemes import Scheme, SideBySide, grader_version
from jobs.recording.file_recorder import FileRecorder
from jobs.runs.control import TrainingError
from jobs.runs.directory import RunDirectory
from jobs.runs.lookup import CommandError
from jobs.specs.evaluation import BenchmarkChoice, ServerSpec
from jobs.specs.train import RecordingSpec
from jobs.supervisor.open_index import open_fresh_index
from tests.jobs.evaluation.completion_server import completions, running
from tests.jobs.evaluation.test_loop import Beats
from tests.jobs.evaluation.tiny_evaluations import tiny_evaluation
from tests.jobs.judging.chain_runs import record_chains

CLI = CliRunner(env={"EXGRPO_RUNS_ROOT": "", "NO_COLOR": "1", "COLUMNS": "200"})


@pytest.fixture
def evaluation(tmp_path, monkeypatch):
    """An evaluation of two questions that an older grader graded, as wrong throughout; its data is gone."""
    data = tmp_path / "sums.jsonl"
    data.write_text("".join(json.dumps({"problem": f"{n}+{n}?", "answer": str(2 * n)}) + "\n" for n in (1, 2)))
    with running(lambda body: completions(*[r"so \boxed{2}"] * body["n"])) as server, monkeypatch.context() as older:
        choice = BenchmarkChoice(name="sums", source=str(data), samples_per_question=2)
        address = ServerSpec(address=server.address, model="m")
        spec = tiny_evaluation("served", (choice,), generator="server", server=address)
        run = RunDirectory.create(tmp_path / "runs", spec)
        wrong = SideBySide(*[Outcome.WRONG] * 3)
        older.setattr(AnswerGrader, "grade_side_by_side", lambda _self, items: [wrong] * len(items))
        older.setattr(loop, "grader_version", lambda: "older")
        older.setattr(results, "grader_version", lambda: "older")
        recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
        run_evaluation(spec, run, recorder, Beats())
        recorder.close()
    data.unlink()
    return run


def test_evaluation_graded_again_is_a_second_one_and_both_scores_are_kept(evaluation):
    runs_root = evaluation.path.parent
    before = {path: path.read_bytes() for path in evaluation.path.rglob("*") if path.is_file()}
    regraded = regrade(runs_root, evaluation.run_id, Scheme.TRAINING)
    assert {path: path.read_bytes() for path in evaluation.path.rglob("*") if path.is_file()} == before
    assert (regraded.num_answers, regraded.num_correct_before["paper"], regraded.num_correct_after["paper"]) == (
        4,
        0,
        2,
    )
    changed = [(change.before, change.after) for change in regraded.changes if change.scheme == "corrected"]
    assert changed == [("wrong", "correct")] * 2
    ((recorded,), faults) = read_regradings(runs_root / regraded.result)
    assert faults == []
    assert (recorded.scheme, recorded.grader_version, recorded.regrading) == ("all", grader_version(), regraded)
    with open_fresh_index(runs_root, None) as database:
        old, new = (
            list_scores(database, run_id=item, scheme="paper")[0] for item in (evaluation.run_id, regraded.result)
        )
    assert (old.score, new.score) == (0.0, 0.5)
    assert (old.comparability["grader_version"], new.comparability["grader_version"]) == ("older", grader_version())
    assert {**old.comparability, "grader_version": ""} == {**new.comparability, "grader_version": ""}
    with pytest.raises(CommandError, match="was graded by this grader"):
        regrade(runs_root, regraded.result, Scheme.TRAINING)


def test_answers_whose_questions_are_not_as_they_were_asked_are_refused(evaluation):
    (path,) = evaluation.path.glob("evaluation/sums-*.jsonl")
    records = [unseal(line) for line in path.read_bytes().splitlines()]
    changed = [record | {"question": record["question"].replace("1+1?", "1+2?")} for record in records]
    path.write_bytes(b"".join(seal(json.dumps(record).encode()) + b"\n" for record in changed))
    with pytest.raises(TrainingError, match="are not recorded as they were asked"):
        regrade(evaluation.path.parent, evaluation.run_id, Scheme.TRAINING)
    assert [entry.name for entry in evaluation.path.parent.iterdir() if entry.name.startswith(".regrading")] == []


def test_an_answer_that_is_not_recorded_is_named(evaluation):
    (path,) = evaluation.path.glob("evaluation/sums-*.jsonl")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    with pytest.raises(
        TrainingError, match=r"the answers to question \S+ of sums are not recorded; score the model again"
    ):
        regrade(evaluation.path.parent, evaluation.run_id, Scheme.TRAINING)


def test_trajectories_of_a_run_are_graded_by_another_scheme_into_a_file_of_their_own(tmp_path):
    dump, runs_root = tmp_path / "dump", tmp_path / "runs"
    dump.mkdir()
    row = {"input": "3*14?", "gts": "42", "step": 1, "uid": "q"}
    scores = [(r"\boxed{6*7}", 1.0), (r"\boxed{42}", 0.0), ("42", 0.0)]
    lines = [json.dumps(row | {"output": text, "score": score}) for text, score in scores]
    (dump / "1.jsonl").write_text("\n".join(lines))
    run_id = adopt(dump, runs_root, "stock").run_id
    regraded = regrade(runs_root, run_id, Scheme.CORRECTED)
    assert [(change.before, change.after) for change in regraded.changes] == [
        ("correct", "wrong"), ("wrong", "correct"), ("wrong", "unparsed"),
    ]  # fmt: skip
    assert (regraded.num_correct_before, regraded.num_correct_after) == ({"corrected": 1}, {"corrected": 1})
    written = json.loads((runs_root / run_id / regraded.result).read_text())
    assert (written["scheme"], written["grader_version"]) == ("corrected", grader_version())
    assert [change["answer"] for change in written["changes"]] == [f"step 1, trajectory {n}" for n in range(3)]
    regrade(runs_root, run_id, Scheme.PAPER)
    assert len(list((runs_root / run_id / "regrades").iterdir())) == 2


def test_run_of_a_built_in_task_is_graded_by_its_reward(tmp_path):
    run = record_chains(tmp_path, [["valid", "lucky", "wrong"]])
    regraded = regrade(tmp_path, run.run_id, Scheme.TRAINING)
    assert (regraded.num_answers, regraded.changes) == (3, [])


def test_command_lists_what_changed(evaluation):
    called = CLI.invoke(app, ["regrade", evaluation.run_id, "--runs-root", str(evaluation.path.parent)])
    assert called.exit_code == 0
    assert ", sample 1, paper: wrong, now correct" in called.stderr
    assert "corrected: 0 of 4 correct before, 2 now." in called.stderr
    assert RunDirectory.open(evaluation.path.parent, called.stdout.strip()).read_run_info()["name"].endswith("regraded")


def test_a_damaged_grading_is_named_by_show_and_verify_and_the_others_are_read(evaluation):
    runs_root, scheme = evaluation.path.parent, Scheme.TRAINING
    regraded = RunDirectory(runs_root / regrade(runs_root, evaluation.run_id, scheme).result)
    ((recorded,), _) = read_regradings(regraded.path)
    write_regrading(regraded.path, replace(recorded, grader_version="next"))
    path = regrading_path(regraded.path, recorded.scheme, "next")
    path.write_bytes(path.read_bytes().replace(b'"num_answers": 4', b'"num_answers": 5'))
    gradings, (fault,) = read_regradings(regraded.path)
    assert gradings == [recorded]
    assert fault == "regrades/all-next.json: differs from what was written, so it is not shown."
    (damage,) = verify_run(regraded)
    assert (damage.what, damage.remedy) == (fault, "The answers are kept; `exgrpo regrade` grades them again.")
    shown = CLI.invoke(app, ["show", regraded.run_id, "--runs-root", str(runs_root)])
    assert f"damaged: {fault}" in shown.stdout


def test_a_grading_of_an_older_version_needs_no_checksum(evaluation):
    runs_root = evaluation.path.parent
    regraded = runs_root / regrade(runs_root, evaluation.run_id, Scheme.TRAINING).result
    before = read_regradings(regraded)
    (path,) = (regraded / "regrades").iterdir()
    path.write_text(json.dumps(unseal(path.read_bytes())))
    assert read_regradings(regraded) == before
