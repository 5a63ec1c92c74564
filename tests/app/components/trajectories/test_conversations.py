"""Conversations on the page of trajectories: folded turns, calls as code, differences, and text of others as text."""

import re
from contextlib import closing
from datetime import UTC, datetime

import pytest

from exgrpo.app.components.trajectories import conversation_view, question_view
from exgrpo.app.formats import NONE_SHOWN
from exgrpo.db.connections.opening import open_database
from exgrpo_core.recording.rows import Message
from tests.app import recorded
from tests.app.page_texts import has_text, tables
from tests.db.conversations import HOSTILE, HOSTILE_CALL, NO_TOOLS, PROMPT, RUN_CODE, SEARCHED, called, ingest
from tests.db.recorded_chains import Response, Step

pytestmark = pytest.mark.slow

SAID = dict(enumerate((SEARCHED, RUN_CODE, NO_TOOLS, HOSTILE_CALL)))
TAG = re.compile(r"</?([a-z]+)(?: class=\"[a-z ]+\"| style=\"[^\"<>]*\"| open)*>")
STEPS = [
    Step({0: [Response(text="said", is_correct=number < 2) for number in range(4)]}, inserted=[(0, 0), (0, 1)]),
    Step({0: [Response(text="plain")]}, replayed={0: (0, 1)}),
]
"""A group of conversations, two of which were stored, and one replayed in step 2."""


@pytest.fixture
def talks(runs_root):
    recorded.beat(runs_root, datetime.now(UTC))
    with closing(open_database(None, runs_root)) as database:
        ingest(database, runs_root, SAID, steps=STEPS)


def html_of(page):
    return [element.proto.body for element in page.get("html")]


@pytest.mark.usefixtures("talks")
def test_open_conversation_shows_counts_turns_and_the_answer(open_page):
    page = open_page("run", view="Trajectories", run="talks", trajectory="0")
    assert has_text(page, "3 turns · 2 tool calls, 1 failed · tokens: assistant 30, tool 60")
    [shown] = [body for body in html_of(page) if 'class="conversation"' in body]
    assert [shown.count(f"<b>Turn {turn}</b>") for turn in (1, 2, 3, 4)] == [1, 1, 1, 0]
    assert list(tables(page)[0].value["Turns"])[-1] == 3


@pytest.mark.usefixtures("talks")
@pytest.mark.parametrize("part", ["Tokens", "Lineage", "Group", "Difference", "Question"])
def test_every_part_of_a_replayed_conversation_is_shown(open_page, part):
    page = open_page("run", view="Trajectories", run="talks", trajectory="0", part=part)
    if part == "Lineage":
        assert "replayed" in list(tables(page)[1].value["Event"])
    if part == "Difference":
        assert page.number_input(key="beside").value == 1
    if part == "Group":
        assert any("python" in body for body in html_of(page))


UNKNOWN = dict.fromkeys(("reward", "is_truncated", "mean_entropy", "mean_log_prob", "advantage")) | {"verdict": ""}


@pytest.mark.usefixtures("talks")
@pytest.mark.parametrize("view", ["Buffer", "Step", "Reasoning"])
def test_tabs_of_replay_work_on_conversations(open_page, view):
    open_page("run", run="talks", view=view)


@pytest.mark.parametrize("part", ["Text", "Group"])
def test_facts_that_were_not_recorded_are_absent_and_what_else_was_recorded_is_shown(open_page, runs_root, part):
    recorded.beat(runs_root, datetime.now(UTC))
    with closing(open_database(None, runs_root)) as database:
        ingest(database, runs_root, {0: SEARCHED, 1: RUN_CODE, 2: NO_TOOLS}, extra={"env <b>": "web*s*"}, **UNKNOWN)
    page = open_page("run", view="Trajectories", run="talks", trajectory="0", part=part)
    assert {metric.label for metric in page.metric} == {"Length", "Replays"}
    assert not has_text(page, f"reward {NONE_SHOWN}")
    assert has_text(page, r"env \<b\>: web\*s\*")
    badges = [block.value for block in page.markdown if "correct]" in block.value]
    assert len(badges) == (1 if part == "Group" else 0)


@pytest.mark.parametrize(
    "html",
    [
        conversation_view.html(HOSTILE_CALL),
        conversation_view.html([Message(HOSTILE, HOSTILE, is_generated=True, reward=0.5)]),
        question_view.html(HOSTILE_CALL, NO_TOOLS, ("one", "two")),
    ],
)
def test_text_of_others_is_no_markup(html):
    assert {found[1] for found in TAG.finditer(html)} <= {"div", "details", "summary", "b", "i", "span"}
    assert "<" not in TAG.sub("", html)
    assert "\x1b" not in html
    assert "\u202e" not in html


def test_long_messages_and_middle_turns_of_many_are_folded():
    turn = (Message("assistant", "so", is_generated=True), Message("user", "and?"))
    html = conversation_view.html((*PROMPT, *turn * 9))
    assert re.findall(r'<details class="turn"( open)?><summary><b>Turn (\d)', html) == [
        (" open" if number in {1, 9} else "", str(number)) for number in range(1, 10)
    ]
    long = conversation_view.html(called("shell", "ls", "line\n" * 40))
    assert '<details class="message result"><summary><b>tool shell</b><i>line line' in long


def test_only_so_much_is_shown_and_compared_that_a_page_stays_fast():
    many = [Message("assistant", "so", is_generated=True)] * 1000
    long = [Message("tool", "x " * 1_000_000, "tool_result")] * 10
    assert len(conversation_view.first_messages(many)) == conversation_view.MAX_MESSAGES
    assert len(conversation_view.first_messages(long)) == 6
    pairs = [[Message("tool", f"{side} {number} " * 1_500) for number in range(60)] for side in ("a", "b")]
    assert question_view.html(*pairs, ("one", "two")).count("words") == 120


def test_words_that_the_model_did_not_write_are_named_and_begin_no_turn():
    html = conversation_view.html((*PROMPT, Message("assistant", "An example."), *SEARCHED[2:]))
    assert "<b>assistant, given</b>" in html
    assert html.index("An example.") < html.index("<b>Turn 1</b>")


def test_entropy_of_a_turn_is_weighted_by_tokens_and_rewards_are_added():
    html = conversation_view.html(SEARCHED)
    assert "entropy 0.450" in html  # (5 * .9 + 9 * .2) / 14
    assert "14 tokens" in html
    assert "reward 1<" in html


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"code": "a = 1\\nb", "n": 2}', "code:\na = 1\nb\nn: 2"), ("not JSON", "not JSON"), ("[1]", "[1]"),
        ("[" * 100_000, "[" * 100_000),
    ],
)  # fmt: skip
def test_arguments_of_a_call_are_one_below_the_other(text, shown):
    assert conversation_view.pretty_call(text) == shown


def test_difference_pairs_speakers_and_folds_what_is_equal():
    pairs = list(question_view.aligned(SEARCHED[2:], RUN_CODE[2:]))
    sides = [(left and left.tool, right and right.tool) for left, right in pairs]
    assert sides == [("", None), ("web_search", None), ("web_search", None), ("web_search", "python"),
                     ("web_search", "python"), ("", "")]  # fmt: skip
    html = question_view.html(SEARCHED, RUN_CODE, ("one", "two"))
    assert "<summary>2 equal messages</summary>" in html
