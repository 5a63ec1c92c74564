import pytest

from exgrpo.db.connections.opening import open_database
from exgrpo.db.connections.session import Database
from exgrpo.db.ingest import events
from exgrpo.jobs.actions.studies.definition import Scale, load_study
from exgrpo.jobs.actions.studies.measures import AVERAGES, BENCHMARK_COLUMNS, MeasuredRun, count_unmasked, measure_run
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo.jobs.specs.evaluation import BenchmarkChoice, EvalModelSpec, EvalSpec
from exgrpo.jobs.specs.train import RecordingSpec
from exgrpo_core.config import HARD, MEDIUM
from exgrpo_core.recording.file_recorder import FileRecorder
from tests.db.recorded_runs import ingest_run, new_run, record_attempt
from tests.db.recorded_scores import event, record_scores
from tests.jobs.evaluation.judging.chain_runs import record_chains

pytestmark = pytest.mark.slow


@pytest.fixture
def database(tmp_path):
    opened = open_database(None, tmp_path)
    yield opened
    opened.close()


def take_in_scores(database: Database, tmp_path, *scores: tuple[str, int, int]) -> None:
    """Record an evaluation of run-1: (benchmark, step, correct answers of 4)."""
    spec = EvalSpec(model=EvalModelSpec(source="a-model"), benchmarks=(BenchmarkChoice(name="aime24"),))
    run = RunDirectory.create(tmp_path / "runs", spec)
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    for name, step, num_correct in scores:
        recorder.record("benchmark", event([num_correct], benchmark=name, title=name, source_step=step))
    recorder.close()
    events.register_run(database, run.read_run_info(), run.job_spec().model_dump(mode="json"))
    batch = EventReader(run).read()
    events.ingest_events(database, run.run_id, batch.events, batch.position)


def test_groups_inside_the_range_are_counted():
    rates = [0.25, 0.5, 0.75, 1.0, 0.0]
    assert count_unmasked(rates, MEDIUM) == 2
    assert count_unmasked(rates, HARD) == 1


def test_benchmark_scores_are_those_of_the_last_scored_checkpoint_with_complete_averages_only(database, tmp_path):
    in_distribution = [(name, 50, 2) for name in AVERAGES["ID Avg."][:-1]]
    take_in_scores(
        database, tmp_path, *in_distribution, ("olympiad_bench", 50, 4), ("arc_c", 50, 1), ("gpqa_diamond", 25, 4)
    )
    figures = measure_run(database, load_study("ablations"), Scale.PAPER, MeasuredRun("run-1", {}))
    assert next(iter(figures)) == "ID Avg."
    assert figures["ID Avg."] == pytest.approx((5 * 50 + 100) / 6)
    assert (figures["AIME24"], figures["ARC-c"]) == (50.0, 25.0)
    assert not {"OOD Avg.", BENCHMARK_COLUMNS["gpqa_diamond"]} & figures.keys()


def test_a_quick_look_at_a_benchmark_does_not_replace_its_whole_score(database, tmp_path):
    whole = event([16] * 30, samples_per_question=32)
    for number, item in enumerate((whole, event([4] * 3), event([4], samples_per_question=4))):
        record_scores(database, tmp_path / "runs", item, run_id=f"2026010{number + 1}-000000-e{number}")
    figures = measure_run(database, load_study("ablations"), Scale.PAPER, MeasuredRun("run-1", {}))
    assert figures["AIME24"] == 50.0


def measured(database, folder, study, num_steps, metrics) -> dict[str, float]:
    run = new_run(folder / "runs")
    record_attempt(run, range(1, num_steps + 1), change=lambda report: report.metrics.update(metrics(report.step)))
    ingest_run(database, run)
    return measure_run(database, load_study(study), Scale.CHAINS, MeasuredRun(run.run_id, {}))


def test_seconds_are_read_over_all_steps_sizes_and_fresh_rollouts_from_the_last(database, tmp_path):
    recorded = {"buffer/memory_bytes": 2e6, "buffer/file_bytes": 5e6, "rollouts/fresh_total": 90.0}
    seconds = {1: 2.0, 2: 6.0, 3: 1.0}
    figures = measured(database, tmp_path, "replay-overhead", 3, lambda n: recorded | {"seconds/step": seconds[n]})
    assert (figures["Avg. Step (s)"], figures["Min. Step (s)"], figures["Peak Step (s)"]) == (3.0, 1.0, 6.0)
    assert "stored trajectories" in figures
    assert (figures["Index in memory (MB)"], figures["Trajectories in files (MB)"]) == (2.0, 5.0)
    assert (figures["Fresh rollouts"], figures["Fresh rollouts per step"]) == (90.0, 30.0)


def test_a_methods_tokens_and_times_are_sums_over_steps(database, tmp_path):
    recorded = {"buffer/file_bytes": 3e6, "tokens/replayed": 50.0}
    changing = lambda n: recorded | {"seconds/step": 2.0 * n, "tokens/generated": 100.0 * n}  # noqa: E731
    figures = measured(database, tmp_path, "methods", 2, changing)
    names = ("Generated tokens", "Steps", "Time of all steps (s)", "Avg. Step (s)", "Peak of the buffer's files (MB)")
    assert [figures[name] for name in names] == [300.0, 2.0, 6.0, 3.0, 3.0]
    assert figures["Replayed tokens (%)"] == 25.0


def test_questions_left_in_mini_batches_are_the_mean_of_what_steps_recorded(database, tmp_path):
    figures = measured(database, tmp_path, "mini-batch-counts", 3, lambda n: {"batch/questions_left": 10.0 + n})
    assert figures == {"# Avg. Mini-Batch": 12.0}


def test_code_and_validity_come_from_the_oracle_on_chains_and_what_is_not_there_is_left_out(database, tmp_path):
    ingest_run(database, record_chains(tmp_path, [["valid", "lucky", "wrong", "code"]]))
    run = MeasuredRun("trained", {"data": {"source": "chains"}})
    code = measure_run(database, load_study("code-analysis"), Scale.CHAINS, run)
    assert code["medium, without code: CoT correctness (%)"] == 50.0
    assert code["medium, with code: trajectories"] == 1.0
    assert not [name for name in code if name.startswith("easy") and "entropy" in name]
    validity = measure_run(database, load_study("entropy-perplexity"), Scale.CHAINS, run)
    assert validity["all: AUC of entropy"] == 1.0
