import asyncio
import json
import subprocess
import sys
from itertools import cycle

import pytest
from mcp import Client
from typer.testing import CliRunner

from exgrpo.jobs.cli.agents import ACTIONS, make_server
from exgrpo.jobs.cli.main import app
from exgrpo.jobs.queries import calls
from exgrpo.jobs.queries.table import QUERIES
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.journal import Journal
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


@pytest.mark.slow
def test_every_number_of_a_query_is_bounded_on_both_sides(runs_root):
    extremes = (2**63, -(2**63) - 1, 2**62, 1e300)
    questions = []
    for name, key in NUMBERS:
        needed = calls.parameters((QUERIES | ACTIONS)[name]).values()
        values = {item.name: "1" for item in needed if item.default is item.empty} | {"run_id": RUN}
        values = {item.name: values[item.name] for item in needed if item.name in values}
        questions += [(name, values | {key: extreme}) for extreme in extremes]
    answers = ask_all(make_server(QUERIES, runs_root, None), questions)
    for (question, (is_error, text)), extreme in zip(zip(questions, answers, strict=True), cycle(extremes)):
        assert is_error or extreme not in extremes[:2], question
        assert "Unexpected" not in text, question


def ask_all(server, questions):
    async def ask():
        async with Client(server) as client:
            results = [await client.call_tool(tool, values) for tool, values in questions]
            return [(result.is_error, result.content[0].text) for result in results]

    return asyncio.run(ask())


def of_run(tool, read, expected, **values):
    return tool, {"run_id": RUN, **values}, read, expected


def test_questions_with_every_kind_of_value_are_answered_as_the_files_say(runs_root):
    steps = {line["step"]: line for line in lines_of(runs_root / RUN, "step")}
    fresh = {line["trajectory_id"]: line for line in lines_of(runs_root / RUN, "trajectory")}
    drawn = {row["question_index"]: row["trajectory_ids"][row["chosen"][0]] for row in steps[7]["selections"]}
    num_correct = sum(row["reward"] > 0 for row in fresh.values() if row["step"] == 5)
    questions = [
        of_run("run", lambda row: row["run"]["step"], max(steps)),
        of_run(
            "curves", lambda curves: [value for _, value in curves["policy/entropy"]],
            [steps[step]["metrics"]["policy/entropy"] for step in sorted(steps)], metric=["policy/entropy"],
        ),
        of_run("trajectories", len, num_correct, step=5, correct=True, limit=1000),
        of_run("trajectory", lambda row: row["trajectory"]["text"], fresh[3]["text"], trajectory_id=3),
        of_run("buffer", lambda state: len(state["buckets"]), steps[7]["metrics"]["buffer/num_questions"], step=7),
        of_run(
            "selections", lambda rows: {row["question_index"]: row["chosen_trajectory_id"] for row in rows}, drawn,
            step=7,
        ),
        (
            "score-comparison", {"first": "eval-first", "second": "eval-second"}, lambda rows: rows[0]["difference"],
            pytest.approx(0.25),
        ),
    ]  # fmt: skip
    answers = ask_all(make_server(QUERIES, runs_root, None), [question[:2] for question in questions])
    for (tool, values, read, expected), (is_error, text) in zip(questions, answers, strict=True):
        assert not is_error, (tool, text)
        assert read(json.loads(text)) == expected, (tool, values)


def test_what_is_wrong_is_one_sentence_and_names_the_value(runs_root):
    questions = [
        ("nothing", {}), ("run", {"run_id": "nobody"}), ("trajectories", {"run_id": RUN, "limit": 0}),
        ("trajectories", {"run_id": RUN, "stp": 3}), ("buffer", {"run_id": RUN, "step": "seven"}),
    ]  # fmt: skip
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


HALVES = {
    r"\ud83d": "\N{REPLACEMENT CHARACTER}", r"\uDE00": "\N{REPLACEMENT CHARACTER}",
    r"a\ud83d b": "a\N{REPLACEMENT CHARACTER} b", r"\ude00\ud83d": 2 * "\N{REPLACEMENT CHARACTER}",
    r"\ud83d\ud83d\ude00": "\N{REPLACEMENT CHARACTER}\N{GRINNING FACE}", r"\ud83d\u0041": "\N{REPLACEMENT CHARACTER}A",
    r"\ud83d\ude00": "\N{GRINNING FACE}", r"\\ud83d": r"\ud83d", r"\\\udbff": "\\\N{REPLACEMENT CHARACTER}",
}  # fmt: skip


def test_the_command_speaks_mcp_on_standard_input_and_output_and_answers_half_a_character(runs_root):
    start = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    lines = [json.dumps({"jsonrpc": "2.0", "id": "start", "method": "initialize", "params": start})]
    lines.append('{"jsonrpc": "2.0", "method": "notifications/initialized"}')
    for number, half in enumerate(HALVES):
        call = f'{{"name": "run", "arguments": {{"run_id": "{half}"}}}}'
        lines.append(f'{{"jsonrpc": "2.0", "id": {number}, "method": "tools/call", "params": {call}}}')
    command = [sys.executable, "-m", "exgrpo.jobs.cli", "mcp", "--runs-root", str(runs_root)]
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
