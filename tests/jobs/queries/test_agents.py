"""Thirty questions that a scripted agent asks by MCP; each answer is derived from the run's files by other means."""

import asyncio
import json
import subprocess
import sys

import pytest
from mcp import Client, StdioServerParameters
from typer.testing import CliRunner

from jobs.cli.agents import ACTIONS, make_server
from jobs.cli.main import app
from jobs.queries import calls
from jobs.queries.table import QUERIES
from jobs.runs.directory import RunDirectory
from jobs.runs.journal import Journal
from tests.jobs.queries import seeded
from tests.jobs.queries.seeded import RUN
from tests.records import lines_of


@pytest.fixture(scope="module")
def runs_root(tmp_path_factory):
    return seeded.seed(tmp_path_factory.mktemp("runs"))


NUMBERS = [
    (name, key)
    for name, function in (QUERIES | ACTIONS).items()
    for key, schema in calls.values_model(function).model_json_schema()["properties"].items()
    if "integer" in str(schema) or "number" in str(schema)
]


@pytest.mark.parametrize(("name", "key"), NUMBERS)
def test_every_number_of_a_query_is_bounded_on_both_sides(runs_root, name, key):
    needed = calls.parameters((QUERIES | ACTIONS)[name]).values()
    values = {item.name: "1" for item in needed if item.default is item.empty} | {"run_id": RUN}
    values = {item.name: values[item.name] for item in needed if item.name in values}
    server = make_server(QUERIES, runs_root, None)
    extremes = (2**63, -(2**63) - 1, 10**40, -1, 2**62, 1e300)
    answers = ask_all(server, [(name, values | {key: extreme}) for extreme in extremes])
    assert all(is_error for is_error, _ in answers[:3])
    assert not [text for _, text in answers if "Unexpected" in text]


def ask_all(server, questions):
    async def ask():
        async with Client(server) as client:
            results = [await client.call_tool(tool, values) for tool, values in questions]
            return [(result.is_error, result.content[0].text) for result in results]

    return asyncio.run(ask())


class Files:
    """What the files of the played run say, read without the product's readers."""

    def __init__(self, runs_root):
        self.steps = {line["step"]: line for line in lines_of(runs_root / RUN, "step")}
        self.num_steps = json.loads((runs_root / RUN / "spec.json").read_text())["num_steps"]
        self.fresh = {line["trajectory_id"]: line for line in lines_of(runs_root / RUN, "trajectory")}
        self.replayed = lines_of(runs_root / RUN, "replay")
        self.changes = [change for event in self.steps.values() for change in event["buffer_events"]]

    def metric(self, name, step):
        return self.steps[step]["metrics"][name]

    def retired(self):
        return {change["question_index"] for change in self.changes if change["kind"] == "retired"}

    def chosen(self, step):
        return {
            row["question_index"]: row["trajectory_ids"][row["chosen"][0]] for row in self.steps[step]["selections"]
        }

    def replays_of(self, trajectory_id):
        return [row["step"] for row in self.replayed if row["trajectory_id"] == trajectory_id]


def most_replayed(files):
    ids = [row["trajectory_id"] for row in files.replayed]
    return max(sorted(set(ids)), key=ids.count)


def of_run(tool, read, right, **values):
    return tool, {"run_id": RUN, **values}, read, right


def thirty(files):
    """Tool, values, how the answer is read from what the tool returns, and what it must be."""
    fresh, last, star = files.fresh, max(files.steps), most_replayed(files)
    in_step = [row for row in fresh.values() if row["step"] == 5]
    long = "policy/entropy"
    return {
        "Which runs are there?": (
            "runs",
            {},
            lambda rows: {row["run_id"] for row in rows},
            {RUN, "trained", "judged", "voted", "calibrated", "eval-first", "eval-second"},
        ),
        "Which evaluations are there?": (
            "runs",
            {},
            lambda rows: sorted(row["run_id"] for row in rows if row["kind"] == "eval"),
            ["eval-first", "eval-second"],
        ),
        "How many steps did it do?": of_run("run", lambda row: row["run"]["step"], last),
        "Of how many planned?": of_run("run", lambda row: row["run"]["num_steps"], files.num_steps),
        "What is the newest mean reward?": of_run(
            "run", lambda row: row["metrics"]["reward/mean"], files.metric("reward/mean", last)
        ),
        "How did the entropy go?": of_run(
            "curves",
            lambda curves: [value for _, value in curves[long]],
            [files.metric(long, step) for step in sorted(files.steps)],
            metric=[long],
        ),
        "When was the mean reward highest?": of_run(
            "curves",
            lambda curves: max(curves["reward/mean"], key=lambda point: point[1])[1],
            max(files.metric("reward/mean", step) for step in files.steps),
            metric=["reward/mean"],
        ),
        "How many trajectories did step 5 make?": of_run("trajectories", len, len(in_step), step=5, limit=1000),
        "How many of them were right?": of_run(
            "trajectories", len, sum(row["reward"] > 0 for row in in_step), step=5, correct=True, limit=1000
        ),
        "And wrong?": of_run(
            "trajectories", len, sum(row["reward"] <= 0 for row in in_step), step=5, correct=False, limit=1000
        ),
        "Which trajectories of question 2 are there?": of_run(
            "trajectories",
            lambda rows: {row["trajectory_id"] for row in rows},
            {number for number, row in fresh.items() if row["question_index"] == 2},
            question=2,
            limit=1000,
        ),
        "How many trajectories were ever replayed?": of_run(
            "trajectories", len, len({row["trajectory_id"] for row in files.replayed}), replayed=True, limit=1000
        ),
        "Which one was replayed most?": of_run(
            "trajectories",
            lambda rows: max(row["num_replays"] for row in rows),
            len(files.replays_of(star)),
            replayed=True,
            limit=1000,
        ),
        "In which steps?": of_run(
            "trajectory",
            lambda row: [event["step"] for event in row["lineage"] if event["kind"] == "replayed"],
            files.replays_of(star),
            trajectory_id=star,
        ),
        "What does it say?": of_run(
            "trajectory", lambda row: row["trajectory"]["text"], fresh[star]["text"], trajectory_id=star
        ),
        "How many tokens does it have?": of_run(
            "trajectory", lambda row: row["trajectory"]["num_tokens"], fresh[star]["num_tokens"], trajectory_id=star
        ),
        "Which question does it answer?": of_run(
            "trajectory",
            lambda row: row["question"]["question_index"],
            fresh[star]["question_index"],
            trajectory_id=star,
        ),
        "Which questions are retired at the end?": of_run(
            "buffer", lambda state: set(state["retired"]), files.retired()
        ),
        "How many questions does the buffer hold?": of_run(
            "buffer", lambda state: len(state["buckets"]), files.metric("buffer/num_questions", last)
        ),
        "And after step 7?": of_run(
            "buffer", lambda state: len(state["buckets"]), files.metric("buffer/num_questions", 7), step=7
        ),
        "Which questions were drawn for replay in step 7?": of_run(
            "selections", lambda rows: {row["question_index"] for row in rows}, set(files.chosen(7)), step=7
        ),
        "And which trajectory of each?": of_run(
            "selections",
            lambda rows: {row["question_index"]: row["chosen_trajectory_id"] for row in rows},
            files.chosen(7),
            step=7,
        ),
        "How many candidates were scored for that?": of_run(
            "candidates", len, sum(len(row["trajectory_ids"]) for row in files.steps[7]["selections"]), step=7
        ),
        "Was the lowest entropy always chosen?": of_run("wrong-choices", len, 0),
        "How many replays were there in all?": of_run(
            "concentration", lambda rows: rows[-1]["num_replays"], len(files.replayed)
        ),
        "How many attempts did it take?": of_run("attempts", len, 1),
        "What does the oracle say of the chains?": (
            "verdicts",
            {"run_id": "trained", "limit": 100},
            lambda rows: sorted(row["oracle"] for row in rows),
            [False] * 4 + [True] * 2,
        ),
        "Who judged them?": (
            "judges",
            {"run": "trained"},
            lambda rows: {row["judge_run_id"] for row in rows},
            {"judged", "voted"},
        ),
        "Which evaluation scores higher on AIME 2024?": (
            "scores",
            {},
            lambda rows: max((row["score"], row["run_id"]) for row in rows if row["benchmark"] == "aime24"),
            (0.75, "eval-second"),
        ),
        "By how much?": (
            "score-comparison",
            {"first": "eval-first", "second": "eval-second"},
            lambda rows: rows[0]["difference"],
            0.25,
        ),
    }


def test_thirty_questions_are_answered_as_the_files_say(runs_root):
    questions = thirty(Files(runs_root))
    assert len(questions) == 30
    answers = ask_all(
        make_server(QUERIES, runs_root, None), [(tool, values) for tool, values, *_ in questions.values()]
    )
    for (question, (_, _, read, right)), (is_error, text) in zip(questions.items(), answers, strict=True):
        assert not is_error, (question, text)
        found = read(json.loads(text))
        assert found == (pytest.approx(right) if isinstance(right, float) else right), question


def test_what_is_wrong_is_one_sentence_and_names_the_value(runs_root):
    questions = [
        ("nothing", {}),
        ("run", {"run_id": "nobody"}),
        ("trajectories", {"run_id": RUN, "limit": 0}),
        ("trajectories", {"run_id": RUN, "stp": 3}),
        ("buffer", {"run_id": RUN, "step": "seven"}),
    ]
    answers = ask_all(make_server(QUERIES, runs_root, None), questions)
    for (is_error, text), named in zip(answers, ("nothing", "nobody", "limit", "stp", "step"), strict=True):
        assert is_error
        assert named in text
        assert "\n" not in text


def test_only_an_operator_changes_anything_and_the_journal_says_that_it_was_an_agent(tmp_path):
    settings = ["num_steps=2", "name=asked"]
    queue = ("queue-run", {"preset": "chains-exgrpo", "settings": settings})
    ((is_error, _),) = ask_all(make_server(QUERIES, tmp_path, None), [queue])
    assert is_error
    assert list(tmp_path.glob("*/spec.json")) == []
    ((is_error, text),) = ask_all(make_server(QUERIES | ACTIONS, tmp_path, None), [queue])
    run_id = json.loads(text)
    assert not is_error
    assert RunDirectory.open(tmp_path, run_id).spec().num_steps == 2
    ask_all(make_server(QUERIES | ACTIONS, tmp_path, None), [("stop-run", {"run_id": "asked"})])
    assert RunDirectory.open(tmp_path, run_id).stop_requested()
    assert {entry.by for entry in Journal(tmp_path).entries()} == {"agent"}


def test_the_command_speaks_mcp_on_standard_input_and_output(runs_root):
    words = ["-m", "jobs.cli", "mcp", "--runs-root", str(runs_root)]
    server = StdioServerParameters(command=sys.executable, args=words)
    ((is_error, text),) = ask_all(server, [("presets", {})])
    assert not is_error
    assert "paper-exgrpo" in {row["preset"] for row in json.loads(text)}
    assert len(text) < 20_000


HALVES = {
    r"\ud83d": "\N{REPLACEMENT CHARACTER}", r"\uDE00": "\N{REPLACEMENT CHARACTER}",
    r"a\ud83d b": "a\N{REPLACEMENT CHARACTER} b", r"\ude00\ud83d": 2 * "\N{REPLACEMENT CHARACTER}",
    r"\ud83d\ud83d\ude00": "\N{REPLACEMENT CHARACTER}\N{GRINNING FACE}", r"\ud83d\u0041": "\N{REPLACEMENT CHARACTER}A",
    r"\ud83d\ude00": "\N{GRINNING FACE}", r"\\ud83d": r"\ud83d", r"\\\udbff": "\\\N{REPLACEMENT CHARACTER}",
}  # fmt: skip


def test_a_request_with_half_a_character_is_answered(runs_root):
    start = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    lines = [json.dumps({"jsonrpc": "2.0", "id": "start", "method": "initialize", "params": start})]
    lines.append('{"jsonrpc": "2.0", "method": "notifications/initialized"}')
    for number, half in enumerate(HALVES):
        call = f'{{"name": "run", "arguments": {{"run_id": "{half}"}}}}'
        lines.append(f'{{"jsonrpc": "2.0", "id": {number}, "method": "tools/call", "params": {call}}}')
    command = [sys.executable, "-m", "jobs.cli", "mcp", "--runs-root", str(runs_root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:
        process.stdin.write("".join(f"{line}\n" for line in lines))
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(len(HALVES) + 1)]
        process.stdin.close()
    texts = {answer["id"]: answer["result"]["content"][0]["text"] for answer in answers if answer["id"] != "start"}
    assert sorted(texts) == [*range(len(HALVES))]
    assert all(read in texts[number] for number, read in enumerate(HALVES.values())), texts


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    assert CliRunner().invoke(app, ["mcp", "--runs-root", str(tmp_path / "gone")]).exit_code == 2


def test_every_tool_says_what_it_does_and_whether_it_changes_anything(runs_root):
    async def ask():
        async with Client(make_server(QUERIES | ACTIONS, runs_root, None)) as client:
            return (await client.list_tools()).tools

    tools = asyncio.run(ask())
    assert {tool.name for tool in tools if not tool.annotations.read_only_hint} == set(ACTIONS)
    assert all(tool.description.endswith(".") and tool.input_schema["type"] == "object" for tool in tools)
