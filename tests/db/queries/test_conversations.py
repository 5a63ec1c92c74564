"""Conversations: stored, counted, searched by role and filtered, on both databases."""

import pytest

from exgrpo.db.queries import trajectories, trajectory_list
from exgrpo.db.queries.lineage import group_members
from exgrpo.db.rows.trajectories import TrajectoryFacets
from exgrpo_core.recording.conversations import is_plain
from exgrpo_core.recording.rows import Message
from tests.db.conftest import KINDS
from tests.db.conversations import HOSTILE_CALL, NO_TOOLS, RUN_CODE, SEARCHED, ingest

PLAIN = 4


@pytest.fixture(scope="module", params=KINDS)
def talks(request, new_database, tmp_path_factory):
    """A run of four conversations and a plain trajectory, the newest."""
    folder = tmp_path_factory.mktemp("talks")
    database = new_database(request.param, folder)
    ingest(database, folder, dict(enumerate((SEARCHED, RUN_CODE, NO_TOOLS, HOSTILE_CALL))))
    yield database
    database.close()


def found(database, words="", **facets):
    where = TrajectoryFacets("talks", words, **facets)
    rows = trajectory_list.list_snippets(database, where)
    assert trajectory_list.count_trajectories(database, where) == len(rows)
    return {row.trajectory_id for row in rows}


def test_messages_come_back_as_they_were_and_plain_ones_are_question_and_response(talks):
    said = [trajectories.messages_of(talks, "talks", number) for number in range(5)]
    assert said[:3] == [SEARCHED, RUN_CODE, NO_TOOLS]
    assert said[3][2:5] == HOSTILE_CALL[2:5]
    assert said[PLAIN] == (Message("user", "prompt 0"), Message("assistant", "plain 4", is_generated=True))
    assert trajectories.messages_of(talks, "talks", 99) == ()


def test_turns_calls_errors_and_tokens_by_role_are_counted(talks):
    rows = [trajectories.get_trajectory(talks, "talks", number) for number in range(5)]
    counts = [(row.num_turns, row.num_tool_calls, row.num_tool_errors) for row in rows]
    assert counts == [(3, 2, 1), (2, 1, 0), (2, 0, 0), (2, 1, 1), (None, None, None)]
    assert rows[0].tokens_by_role == {"assistant": 30, "tool": 60}
    assert rows[PLAIN].tokens_by_role is None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("timeout", {0, 1}), ("role:tool timeout", {0}), ("role:TOOL Timeout seconds", {0}),
        ("role:assistant timeout", {1}), ("role:call height", {0}), ("role:assistant height", {0}),
        ("role:thinking look", {0}), ("role:thinking height", set()), ("role:system web", {0, 1, 2, 3}), ("web", {0}),
        ("330 role:user tower", {0, 1, 2}), ("role:user alert role:assistant about", {2}), ("tool:web_search", {0}),
        ("tool:python role:tool 1", {1}), ("role:nobody timeout", set()), ("plain 4", {PLAIN}),
        ("role:assistant 4 plain", {PLAIN}), ("role:assistant seconds", set()),
    ],
)  # fmt: skip
def test_words_are_searched_in_responses_and_by_role(talks, words, expected):
    assert found(talks, words) == expected


def test_filters_by_tool_failed_calls_and_turns(talks):
    assert found(talks, tool="web_search") == {0}
    assert found(talks, "role:tool 330", tool="web_search") == {0}
    assert found(talks, has_tool_errors=True) == {0, 3}
    assert found(talks, has_tool_errors=False) == {1}
    assert found(talks, turns_from=2) == {0, 1, 2, 3}
    assert found(talks, turns_to=1) == {PLAIN}
    counts = trajectory_list.count_facets(talks, TrajectoryFacets("talks"))
    assert counts["has_tool_errors"] == {True: 2, False: 1, None: 2}
    assert trajectory_list.list_tools(talks, "talks")[1:] == ["python", "web_search"]
    assert trajectory_list.list_tools(talks, "none") == []
    assert {"num_turns", "num_tokens"} <= {*trajectory_list.list_known(talks, "talks")}
    assert trajectory_list.list_known(talks, "none") == []


@pytest.mark.parametrize("said", [(1, 4), (0, 1, 4), (4,)])
def test_one_text_after_a_prompt_of_system_and_user_is_stored_as_texts_alone(said):
    every = (*SEARCHED[:2], SEARCHED[2], Message("assistant", "example"), SEARCHED[-1])
    assert is_plain([every[number] for number in said])
    assert not is_plain([every[number] for number in (*said[:-1], 3, 4)])
    assert not is_plain([every[number] for number in (*said, 4)])


def test_groups_compare_responses_with_their_speakers(talks):
    texts = [member.text for member in group_members(talks, "talks", 1, 0)]
    assert texts[1].startswith('[call python]\n{"code"')
    assert texts[PLAIN] == "plain 4"
