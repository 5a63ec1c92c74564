import contextlib
import threading
import time

import pytest

from exgrpo.jobs.evaluation.judging.verdicts import PROMPT_FILE
from exgrpo.jobs.execution.supervisor.__main__ import supervise
from exgrpo.jobs.execution.supervisor.indexing import REFRESH_SECONDS, Indexer
from exgrpo.jobs.execution.supervisor.loop import Supervisor
from exgrpo.jobs.runs.directory import RunDirectory
from tests.data_files import write_lines
from tests.jobs.cli.invoked import exgrpo, printed_json
from tests.jobs.evaluation.judging.chain_runs import record_chains
from tests.jobs.evaluation.judging.judge_server import completions, serving

pytestmark = pytest.mark.slow

KINDS = ["valid", "lucky", "wrong", "code"]


@pytest.fixture
def benchmark_file(tmp_path):
    rows = [{"problem": f"What is {number}+{number}?", "answer": 2 * number} for number in range(30)]
    return write_lines(tmp_path / "sums.jsonl", rows)


def queued(runs_root, command, *words):
    run_id = exgrpo(runs_root, command, *words, "--detach").strip()
    return RunDirectory.open(runs_root, run_id).job_spec()


def test_specification_holds_what_the_command_was_given(tmp_path, benchmark_file):
    words = ["-b", f"aime24={benchmark_file}", "-b", "gpqa_diamond", "-b", f"mine={benchmark_file}"]
    words += ["--num-questions", "3", "--num-samples", "2", "--set", "temperature=0", "--set", "name=first try"]
    spec = queued(tmp_path / "runs", "eval", "owner/model", *words)
    assert (spec.name, spec.temperature, spec.model.source) == ("first try", 0.0, "owner/model")
    named = {benchmark.name: benchmark.source for benchmark in spec.benchmarks}
    assert named == {"aime24": str(benchmark_file), "gpqa_diamond": None, "mine": str(benchmark_file)}
    assert {(item.num_questions, item.samples_per_question) for item in spec.benchmarks} == {(3, 2)}


def test_declared_benchmarks_are_listed_and_scored_by_name_unless_a_setting_says_otherwise(tmp_path, benchmark_file):
    folder = tmp_path / "runs" / "workbench" / "benchmarks"
    folder.mkdir(parents=True)
    fields = f"source: {benchmark_file}, samples_per_question: 4, temperature: 0.1, template: chat"
    (folder / "mine.yaml").write_text(f"sums: {{{fields}}}")
    rows = printed_json(tmp_path / "runs", "query", "benchmarks")
    assert [(row["name"], row["source"]) for row in rows][-1] == ("sums", str(benchmark_file))
    (choice,) = queued(tmp_path / "runs", "eval", "owner/model", "-b", "sums").benchmarks
    assert (choice.source, choice.samples_per_question, choice.temperature) == (str(benchmark_file), 4, 0.1)
    spec = queued(tmp_path / "runs", "eval", "owner/model", "-b", "sums", "--set", "temperature=1")
    assert (spec.temperature, spec.benchmarks[0].temperature, spec.benchmarks[0].template) == (1.0, None, "chat")


@pytest.mark.parametrize(
    ("words", "beginning"),
    [
        (["eval", "nobody@5", "-b", "aime24"], "RUN: "),
        (["eval", "m", "-b", "aime23"], "benchmarks: "),
        (["eval", "m", "-b", "aime24", "--set", "temprature=1"], "--set temprature: "),
        (["eval", "m", "-b", "AIME 24=a.jsonl"], "eval: benchmarks.0.name: "),
        (["judge"], "exgrpo judge: judged.run_id, judged.file: "),
        (["judge", "--server", "http://a:b@c/v1"], "exgrpo judge: "),
        (["judge", "trained", "--set", "server.tempo=3"], "--set server.tempo: "),
    ],
)
def test_wrong_words_are_refused_by_field_in_one_sentence(tmp_path, words, beginning):
    record_chains(tmp_path, [KINDS])
    assert exgrpo(tmp_path, *words, code=2).startswith(beginning)


class LateIndex(Indexer):
    """One that ingests nothing until a run's outcome has been there for a second."""

    def poll(self, budget_seconds=REFRESH_SECONDS):
        outcomes = [path.stat().st_mtime for path in self._runs_root.glob("*/attempts/*/outcome.json")]
        if outcomes and time.time() - max(outcomes) > 1:
            super().poll(budget_seconds)


@contextlib.contextmanager
def supervised(runs_root, index):
    supervisor, is_over = Supervisor(runs_root), threading.Event()
    thread = threading.Thread(target=supervise, args=(supervisor, index, is_over.is_set))
    thread.start()
    yield
    is_over.set()
    thread.join()
    supervisor.close()


def test_scores_are_printed_and_shown_again_also_where_the_workbench_ingests_them_late(tmp_path, benchmark_file):
    def answer(body):
        number = int(body["prompt"].split("What is ")[1].split("+")[0])
        return completions(*[rf"\boxed{{{2 * number}}}" + ("" if number % 2 else r" or \boxed{")] * body["n"])

    with serving(answer) as server, supervised(tmp_path / "runs", LateIndex(None, tmp_path / "runs")):
        words = ["--set", "generator=server", "--set", f"server={{address: {server.address}, model: m}}"]
        words += ["-b", f"aime24={benchmark_file}", "--num-questions", "8"]
        report = printed_json(tmp_path / "runs", "eval", "m", *words)
    # By the published rules a last box that never closes hides the one before it.
    scores = {row["scheme"]: row["score"] for row in report["scores"]}
    assert scores == {"paper": 0.5, "training": 1.0}
    assert "0.5000 (95%: 0.2171 to 0.7829, 8 questions x 32)" in exgrpo(tmp_path / "runs", "show", report["run_id"])


def test_a_run_is_judged_analysed_and_rebuilt_from_the_command_line(tmp_path):
    record_chains(tmp_path, [KINDS, KINDS])
    with serving() as server:
        summary = printed_json(tmp_path, "judge", "trained", "--server", server.address, "--model", "a judge")
        assert len(server.bodies) == 6
    assert (summary["num_valid"], summary["num_invalid"], summary["num_unjudged"]) == (2, 4, 0)
    assert summary["issues"] == {"calculation": 2, "omission": 2}
    assert (summary["judge"], summary["prompt"], summary["source"]) == ("a judge", PROMPT_FILE.stem, "trained")
    printed = printed_json(tmp_path, "query", "analysis", "trained", "--judge", summary["run_id"])
    assert (printed["judge"], printed["cases"][0]["high"]["is_valid"]) == ("a judge", False)
    exgrpo(tmp_path, "db", "rebuild")
    [judge] = printed_json(tmp_path, "query", "judges", "trained")
    assert (judge["judge_run_id"], judge["status"], judge["num_responses"]) == (summary["run_id"], "finished", 6)


def test_a_judge_of_labelled_solutions_is_asked_for_as_many_votes_as_the_command_was_given(tmp_path):
    labelled = tmp_path / "labelled.jsonl"
    labelled.write_text('{"id": "1", "problem": "p", "steps": ["good"], "label": -1}\n')
    words = ["--labelled", labelled, "--server", "http://127.0.0.1:9/v1", "--votes", 2, "--limit", 5]
    spec = queued(tmp_path / "runs", "judge", *words)
    assert (spec.judged.file, spec.judged.limit, spec.num_votes) == (labelled, 5, 2)
    assert (spec.judge, spec.server.address) == ("server", "http://127.0.0.1:9/v1")
