"""Row 14: one bit flipped or a part cut off in a file that is the truth, or that a page reads, is noticed."""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from exgrpo.jobs.actions.verification import verify_root
from exgrpo.jobs.evaluation.judging.verdicts import VOTES_EVENT
from exgrpo.jobs.evaluation.recorded_answers import iterate_answers
from exgrpo.jobs.runs.attempts import read_outcome, write_outcome
from exgrpo.jobs.runs.directory import RunDirectory, RunDirectoryError
from exgrpo.jobs.runs.journal import JOURNAL_FILE, Journal, JournalKind
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo.jobs.specs.judging import JudgedSpec, JudgeSpec
from exgrpo.jobs.specs.train import RecordingSpec, SpecError
from exgrpo_core.bounded_json import UnreadableFileError
from exgrpo_core.recording.attempt_gate import OUTCOME_FILE
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.run_status import RunStatus
from tests.faults.small_training import small_spec, train
from tests.jobs.evaluation.analysis.recorded_samples import append as append_answers

pytestmark = [pytest.mark.fault_row(14), pytest.mark.timeout(2400)]

NUM_STEPS = 6
SEED = 5
JUDGE = "99990101-000000-abcdef"
"""Later than any other run."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    journal = Journal(root)
    for _ in range(2):
        run = RunDirectory.create(root, small_spec(NUM_STEPS))
        journal.append(JournalKind.SUBMITTED, run.run_id, attempt=1)
        assert train(run) is RunStatus.FINISHED
        write_outcome(run.attempt_path(1), RunStatus.FINISHED, "")
        journal.append(JournalKind.TAGGED, run.run_id, tag="whole")
        for answer in ("4", "5", ""):
            append_answers(run.path, f"q{answer}", [(answer, -0.5), ("4", None)])
    _record_votes(root)
    assert verify_root(root) == []
    return root


def _record_votes(root):
    run = RunDirectory.create(root, JudgeSpec(judged=JudgedSpec(run_id="a"), judge="oracle"), run_id=JUDGE)
    with closing(FileRecorder(run, run.claim_attempt(), RecordingSpec())) as recorder:
        recorder.status(RunStatus.RUNNING)
        for number in (1, 2):
            recorder.record(VOTES_EVENT, {"votes": [{"item_id": f"a/1/{number}", "vote": 0, "outcome": "valid"}]})
        recorder.status(RunStatus.FINISHED)
    write_outcome(run.attempt_path(1), RunStatus.FINISHED, "")


def files_of_truth(root):
    training = min(path.parent for path in root.glob("*/run.json"))
    about_processes = {"lock", "heartbeat.json"}
    files = [path for run in (training, root / JUDGE) for path in run.rglob("*") if path.is_file()]
    kept = [path for path in files if path.name not in about_processes]
    return sorted(path.relative_to(root) for path in [*kept, Journal(root).path])


def content_of(root):
    content: dict[str, Any] = {JOURNAL_FILE: Journal(root).entries()}
    for path in sorted(root.glob("*/run.json")):
        run = RunDirectory(path.parent)
        readers: dict[str, Callable[[], Any]] = {
            "run.json": run.read_run_info, "spec.json": run.job_spec,
            OUTCOME_FILE: lambda run=run: read_outcome(run.attempt_path(1)),
            "events": EventReader(run).read(max_steps=1000).events, "answers": dict(iterate_answers(run.path, "sums")),
        }  # fmt: skip
        for name, read in readers.items():
            try:
                content[f"{run.run_id}/{name}"] = read() if callable(read) else read
            except (RunDirectoryError, SpecError, FileNotFoundError, UnreadableFileError):
                content[f"{run.run_id}/{name}"] = None
    return content


def damage_one(path, rng):
    content = bytearray(path.read_bytes())
    index = rng.randrange(len(content))
    if rng.random() < 0.3:
        path.write_bytes(content[:index])
        return f"cut at {index}"
    content[index] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    return f"flipped at {index}"


def test_damage_of_any_file_is_noticed_and_nothing_else_is_lost(whole, is_long, figure):
    rng = random.Random(SEED)
    before = content_of(whole)
    names = files_of_truth(whole)
    num_damaged: Counter[str] = Counter()
    for number in range(1000 if is_long else 40):
        name = names[number % len(names)]
        kept = (whole / name).read_bytes()
        how = damage_one(whole / name, rng)
        damages = verify_root(whole)
        after = content_of(whole)
        (whole / name).write_bytes(kept)
        label = f"{name} {how}"
        if how.startswith("cut") and name.suffix == ".jsonl":
            continue  # lines of answers and of the journal have no numbers: their loss changes what is asked again
        assert damages or after == before, label
        lost = {key for key in before if after[key] != before[key]}
        assert len(lost) <= 1, f"{label}: {lost}"
        if lost and damages:
            assert {damage.run_id for damage in damages} == {name.parts[0] if name.parts[0] != "workbench" else ""}, (
                label
            )
        if name.parts[1] in {"buffer", "checkpoints", "evaluation"}:
            assert damages, label
        num_damaged[name.name.partition("-")[0]] += 1
    figure("damaged files", ", ".join(f"{count} {kind}" for kind, count in sorted(num_damaged.items())))
    figure("accepted silently", 0)


@pytest.mark.parametrize("name", ["run.json", "spec.json", "attempts/0001/record-0000-of-0001.jsonl.gz"])
def test_a_file_that_is_missing_is_named(whole, name):
    run = min(path.parent for path in whole.glob("*/run.json"))
    kept = (run / name).read_bytes()
    (run / name).unlink()
    [damage] = [damage for damage in verify_root(whole) if damage.run_id == run.name]
    (run / name).write_bytes(kept)
    assert damage.fault.file.partition("/")[0] == name.partition("/")[0]


def test_an_unreadable_outcome_is_never_overwritten(whole, tmp_path):
    root = tmp_path / "runs"
    shutil.copytree(whole, root)
    run = RunDirectory(min(path.parent for path in root.glob("*/run.json")))
    path = run.attempt_path(1) / OUTCOME_FILE
    path.write_bytes(b'{"status": "finished"')
    outcome = write_outcome(run.attempt_path(1), RunStatus.LOST, "overwritten")
    assert outcome.status is RunStatus.LOST
    assert outcome.fault.file == f"attempts/0001/{OUTCOME_FILE}"
    assert path.read_bytes() == b'{"status": "finished"'
