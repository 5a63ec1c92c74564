import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from db.connections.opening import open_database
from db.queries.judging import list_judges
from jobs.cli.main import app
from jobs.judging.verdicts import PROMPT_FILE
from jobs.runs.directory import list_run_directories
from tests.jobs.cli.invoked import printed_json
from tests.jobs.judging.chain_runs import record_chains
from tests.jobs.judging.judge_server import completion, completions, judged_texts, serving

CLI = CliRunner(env={"EXGRPO_RUNS_ROOT": "", "NO_COLOR": "1", "COLUMNS": "200"})


@pytest.fixture
def benchmark_file(tmp_path):
    path = tmp_path / "sums.jsonl"
    rows = [{"problem": f"What is {number}+{number}?", "answer": 2 * number} for number in range(30)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def evaluate(runs_root, *words):
    return CLI.invoke(app, ["eval", *words, "--runs-root", str(runs_root)])


def test_specification_holds_what_the_command_was_given(tmp_path, benchmark_file):
    words = ["-b", f"aime24={benchmark_file}", "-b", "gpqa_diamond", "--num-questions", "3", "--num-samples", "2"]
    settings = ["--set", "temperature=0", "--set", "name=first try"]
    result = evaluate(tmp_path / "runs", "owner/model", *words, *settings, "--detach")
    assert result.exit_code == 0, result.output
    (run,) = list_run_directories(tmp_path / "runs")
    spec = run.job_spec()
    assert result.stdout.strip() == run.run_id
    assert (spec.name, spec.temperature, spec.model.source) == ("first try", 0.0, "owner/model")
    assert [(benchmark.name, benchmark.source) for benchmark in spec.benchmarks] == [
        ("aime24", str(benchmark_file)),
        ("gpqa_diamond", None),
    ]
    assert {(item.num_questions, item.samples_per_question) for item in spec.benchmarks} == {(3, 2)}


def test_data_of_ones_own_is_scored_under_its_own_name(tmp_path, benchmark_file):
    result = evaluate(tmp_path / "runs", "owner/model", "-b", f"mine={benchmark_file}", "--detach")
    assert result.exit_code == 0, result.output
    (choice,) = list_run_directories(tmp_path / "runs")[0].job_spec().benchmarks
    assert (choice.name, choice.source) == ("mine", str(benchmark_file))


def test_declared_benchmarks_are_listed_and_scored_by_name(tmp_path, benchmark_file):
    folder = tmp_path / "runs" / "workbench" / "benchmarks"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(f"sums: {{source: {benchmark_file}, samples_per_question: 4, temperature: 0.1}}")
    rows = printed_json(tmp_path / "runs", "query", "benchmarks")
    assert [row["name"] for row in rows][-2:] == ["mmlu_pro", "sums"]
    assert rows[-1]["source"] == str(benchmark_file)
    result = evaluate(tmp_path / "runs", "owner/model", "-b", "sums", "--detach")
    assert result.exit_code == 0, result.output
    (choice,) = list_run_directories(tmp_path / "runs")[0].job_spec().benchmarks
    assert (choice.name, choice.source, choice.samples_per_question) == ("sums", str(benchmark_file), 4)
    assert choice.temperature == 0.1


def test_setting_counts_before_what_a_benchmark_declares(tmp_path, benchmark_file):
    folder = tmp_path / "runs" / "workbench" / "benchmarks"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(f"sums: {{source: {benchmark_file}, template: chat, temperature: 0.1}}")
    result = evaluate(tmp_path / "runs", "owner/model", "-b", "sums", "--set", "temperature=1", "--detach")
    assert result.exit_code == 0, result.output
    spec = list_run_directories(tmp_path / "runs")[0].job_spec()
    assert (spec.temperature, spec.benchmarks[0].temperature, spec.benchmarks[0].template) == (1.0, None, "chat")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nobody@5", "-b", "aime24"], "no run in"),
        (["m", "-b", "aime23"], "benchmarks: expected some of aime24"),
        (["m", "-b", "aime24", "--set", "temprature=1"], "did you mean temperature"),
        (["m", "-b", "AIME 24=a.jsonl"], "benchmarks.0.name: expected lower-case letters, digits and _"),
    ],
)
def test_wrong_words_are_refused_in_one_sentence(tmp_path, words, message):
    result = evaluate(tmp_path / "runs", *words)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.slow
def test_scores_are_printed_and_shown_again(tmp_path, benchmark_file):
    def answer(body):
        number = int(body["prompt"].split("What is ")[1].split("+")[0])
        return completions(*[rf"\boxed{{{2 * number}}}" + ("" if number % 2 else r" or \boxed{")] * body["n"])

    with serving(answer) as server:
        settings = ["generator=server", f"server={{address: {server.address}, model: m}}"]
        words = [word for setting in settings for word in ("--set", setting)]
        result = evaluate(
            tmp_path / "runs", "m", "-b", f"aime24={benchmark_file}", "--num-questions", "8", *words, "--json"
        )
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    # By the published rules a last box that never closes hides the one before it.
    scores = {row["scheme"]: row["score"] for row in report["scores"]}
    assert scores == {"paper": 0.5, "training": 1.0}
    printed = CLI.invoke(app, ["show", report["run_id"], "--runs-root", str(tmp_path / "runs")])
    assert "AIME 2024      paper     0.5000 ± 0.3704, 8 questions x 32" in printed.stdout


KINDS = ["valid", "lucky", "wrong", "code"]


def exgrpo(runs_root, *words, code=0):
    """Run a command as a user would, in a process of its own, and return what it printed as JSON."""
    command = [sys.executable, "-m", "jobs.cli", *words, "--runs-root", str(runs_root), "--json"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == code, finished.stdout + finished.stderr
    return json.loads(finished.stdout) if finished.stdout else finished.stderr


@pytest.mark.slow
def test_a_run_is_judged_shown_analysed_and_rebuilt_from_the_command_line(tmp_path):
    record_chains(tmp_path, [KINDS, KINDS])
    with serving() as server:
        summary = exgrpo(tmp_path, "judge", "trained", "--server", server.address, "--model", "a judge")
        assert len(server.bodies) == 6
    assert (summary["num_valid"], summary["num_invalid"], summary["num_unjudged"]) == (2, 4, 0)
    assert summary["issues"] == {"calculation": 2, "omission": 2}
    assert (summary["judge"], summary["prompt"], summary["source"]) == ("a judge", PROMPT_FILE.stem, "trained")
    printed = exgrpo(tmp_path, "query", "analysis", "trained", "--judge", summary["run_id"])
    assert printed["judge"] == "a judge"
    assert printed["cases"][0]["high"]["is_valid"] is False
    subprocess.run(
        [sys.executable, "-m", "jobs.cli", "db", "rebuild", "--runs-root", str(tmp_path)], check=True, timeout=120
    )
    database = open_database(None, tmp_path)
    [judge] = list_judges(database, "trained")
    assert (judge.judge_run_id, judge.status, judge.num_responses) == (summary["run_id"], "finished", 6)
    database.close()


@pytest.mark.slow
def test_a_judge_is_calibrated_on_labelled_solutions_from_the_command_line(tmp_path):
    labelled = tmp_path / "labelled.jsonl"
    rows = [{"id": f"{n}", "problem": "p", "steps": ["good" if n % 2 else "bad"], "label": -(n % 2)} for n in range(8)]
    labelled.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")

    def judge_by_word(body):
        return completion(f"\\boxed{{{'yes' if judged_texts(body)[1] == 'good' else 'no'}}}")

    with serving(judge_by_word) as server:
        summary = exgrpo(tmp_path, "judge", "--labelled", str(labelled), "--server", server.address, "--votes", "2")
        assert len(server.bodies) == 16
    calibration = summary["calibration"]
    assert (calibration["sensitivity"]["value"], calibration["specificity"]["value"]) == (1.0, 1.0)
    assert (calibration["kappa"], calibration["flips"]["num_items"]) == (1.0, 8)


@pytest.mark.slow
def test_a_judge_that_may_not_be_asked_fails_with_one_sentence(tmp_path):
    record_chains(tmp_path, [KINDS])
    command = [sys.executable, "-m", "jobs.cli", "judge", "trained", "--server", "http://169.254.169.254/v1",
               "--runs-root", str(tmp_path)]  # fmt: skip
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 1
    assert "server.address: 169.254.169.254" in finished.stderr
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["judge"], "expected exactly one of run_id and file"),
        (["judge", "--server", "http://a:b@c/v1"], "set the key in the environment"),
        (["judge", "trained", "--set", "server.tempo=3"], "no such field"),
    ],
)
def test_a_wrong_order_is_refused_in_one_sentence(tmp_path, words, sentence):
    record_chains(tmp_path, [KINDS])
    result = CliRunner().invoke(app, [*words, "--runs-root", str(tmp_path)])
    assert result.exit_code == 2
    assert sentence in result.stderr
