import numpy as np
import pytest

from exgrpo_core.experience_management import replay_buffer
from exgrpo_core.experience_management.replay_buffer import InsertOutcome, ReplayBuffer
from exgrpo_core.experience_management.storage.segment_store import remove_old_segments
from tests.exgrpo_core.experience_management.buffers import NUM_QUESTIONS, K, empty_buffer, random_successes, success


@pytest.fixture
def buffer(tmp_path):
    opened = empty_buffer(tmp_path)
    yield opened
    opened.close()


def test_stored_trajectory_comes_back_as_it_went_in(buffer):
    stored = success(7, [5, 6, 7], trajectory_id=40, rollout_step=3, log_probs=[-0.1, -0.2, -0.3])
    assert buffer.insert([stored]) == [InsertOutcome(0, 40, is_duplicate=False)]
    (experience,) = buffer.experiences(buffer.rows_of(7))
    assert (experience.row, experience.trajectory_id, experience.question_index) == (0, 40, 7)
    assert (experience.rollout_step, experience.reward) == (3, 1.0)
    assert experience.token_ids.dtype == np.int32
    assert experience.behavior_log_probs.dtype == np.float32
    np.testing.assert_array_equal(experience.token_ids, stored.token_ids)
    np.testing.assert_array_equal(experience.behavior_log_probs, stored.log_probs)
    assert (buffer.num_questions, buffer.num_trajectories, buffer.num_tokens) == (1, 1, 3)
    assert buffer.bucket_of(7) == 0
    assert buffer.bucket_of(3) is None
    # Neither what the caller does to its arrays later nor what it does to returned ones changes what is stored.
    for array in (stored.token_ids, experience.token_ids, experience.behavior_log_probs):
        array[:] = 0
    (again,) = buffer.experiences(np.array([0]))
    assert again.token_ids.tolist() == [5, 6, 7]
    assert again.behavior_log_probs[0] == np.float32(-0.1)


def test_same_tokens_of_a_question_are_stored_once(buffer):
    buffer.insert([success(7, [5, 6], trajectory_id=40)])
    again = [success(7, [5, 6], 41, log_probs=[-9, -9]), success(8, [5, 6], 42), success(7, [5, 6, 6], 43)]
    assert buffer.insert(again) == [
        InsertOutcome(0, 40, is_duplicate=True),
        InsertOutcome(1, 42, is_duplicate=False),
        InsertOutcome(2, 43, is_duplicate=False),
    ]
    assert buffer.rows_of(7).tolist() == [0, 2]
    assert buffer.num_trajectories == 3
    np.testing.assert_allclose(buffer.experiences(np.array([0]))[0].behavior_log_probs, [-0.05, -0.06], rtol=1e-6)


def test_refreshed_trajectory_has_the_newer_log_probs_and_keeps_its_number_uses_and_entropy(buffer):
    buffer.insert([success(7, [5, 6], trajectory_id=40), success(7, [8], trajectory_id=41)])
    assert np.isnan(buffer.last_entropies(np.array([0, 1]))).all()
    buffer.record_replays(np.array([0, 0, 1]))
    buffer.record_entropies(np.array([0, 1]), np.float32([0.25, 0.5]))
    newer = [np.float32([-9, -9]), np.float32([-1, -2])]
    assert buffer.refresh([0, 0], newer, step=5) == 1
    rows = buffer.rows_of(7)
    assert rows.tolist() == [1, 2]
    kept, refreshed = buffer.experiences(rows)
    assert (kept.trajectory_id, kept.rollout_step) == (41, 1)
    assert (refreshed.trajectory_id, refreshed.rollout_step, refreshed.token_ids.tolist()) == (40, 5, [5, 6])
    assert refreshed.behavior_log_probs.tolist() == [-1, -2]
    assert buffer.num_replays(rows).tolist() == [1, 2]
    assert buffer.last_entropies(rows).tolist() == [0.5, 0.25]
    assert (buffer.num_trajectories, buffer.num_stored(np.array([7])).tolist()) == (2, [2])
    assert buffer.newest_rollout_steps(np.array([7])).tolist() == [5]
    assert buffer.insert([success(7, [5, 6], 50)]) == [InsertOutcome(2, 40, is_duplicate=True)]
    assert buffer.refresh([2], newer[:1], step=5) == buffer.refresh([], [], step=6) == 0
    buffer.retire(7)
    assert buffer.num_trajectories == 0


def test_twins_are_told_apart_among_rows_of_one_checksum_in_several_segments(tmp_path, monkeypatch):
    monkeypatch.setattr(replay_buffer, "checksums", lambda arrays, _: np.full(len(arrays), 7, dtype=np.uint32))
    buffer = empty_buffer(tmp_path)
    buffer.insert([success(7, [1, 2], 10), success(7, [1, 3], 11)])
    buffer.seal()
    buffer.insert([success(7, [1, 4], 12), success(8, [1, 3], 13)])
    inserted = [[1, 3], [1, 4], [1], [1, 2], [1]]
    outcomes = buffer.insert([success(7, item, 20 + i) for i, item in enumerate(inserted)])
    assert [tuple(outcome) for outcome in outcomes] == [
        (1, 11, True), (2, 12, True), (4, 22, False), (0, 10, True), (4, 22, True),
    ]  # fmt: skip


def test_buckets_hold_what_was_moved_there(buffer):
    rng = np.random.default_rng(0)
    expected: dict[int, int] = {}
    newest: dict[int, int] = {}
    for i in range(600):
        question = int(rng.integers(NUM_QUESTIONS))
        if rng.random() < 0.2:
            buffer.retire(question)
            expected.pop(question, None)
            newest.pop(question, None)
            continue
        buffer.insert([success(question, [i], rollout_step=i)])
        newest[question] = i
        expected[question] = int(rng.integers(K + 1))
        buffer.set_bucket(question, expected[question])
        for bucket in range(K + 1):
            assert sorted(buffer.members(bucket).tolist()) == sorted(q for q, b in expected.items() if b == bucket)
    assert buffer.num_questions == len(expected)
    assert buffer.num_drawable == sum(bucket > 0 for bucket in expected.values())
    assert buffer.questions().tolist() == sorted(q for q, b in expected.items() if b > 0)
    buckets = buffer.buckets_of(np.arange(NUM_QUESTIONS))
    assert buckets.tolist() == [expected.get(question, -1) for question in range(NUM_QUESTIONS)]
    steps = buffer.newest_rollout_steps(np.arange(NUM_QUESTIONS))
    assert steps.tolist() == [newest.get(question, -1) for question in range(NUM_QUESTIONS)]
    assert all((np.diff(buffer.rows_of(question)) > 0).all() for question in range(NUM_QUESTIONS))


def test_experiences_come_in_the_order_asked_for_across_segments(tmp_path):
    rng = np.random.default_rng(1)
    buffer = ReplayBuffer(tmp_path, NUM_QUESTIONS, K, segment_bytes=2000)
    stored = {}
    for step in range(20):
        trajectories = random_successes(rng, 10, step, first_id=10 * step)
        for trajectory, outcome in zip(trajectories, buffer.insert(trajectories), strict=True):
            stored.setdefault(outcome.row, trajectory)
        if step % 7 == 3:
            buffer.seal()
    assert len(list(tmp_path.glob("*.rows"))) > 4
    asked = rng.permutation(len(stored))
    for row, experience in zip(asked.tolist(), buffer.experiences(asked), strict=True):
        assert experience.row == row
        assert experience.trajectory_id == stored[row].trajectory_id
        np.testing.assert_array_equal(experience.token_ids, stored[row].token_ids)
        np.testing.assert_array_equal(experience.behavior_log_probs, stored[row].log_probs)
    twice = buffer.experiences(np.array([3, 3]))
    assert [experience.row for experience in twice] == [3, 3]
    assert buffer.experiences(np.array([], dtype=np.int64)) == []


def test_retired_question_leaves_with_its_rows_and_comes_in_again_with_new_ones_only(buffer, tmp_path):
    buffer.insert([success(7, [1], 0), success(7, [2], 1), success(8, [3], 2)])
    buffer.set_bucket(7, 4)
    buffer.seal()
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    buffer.retire(7)
    assert buffer.bucket_of(7) is None
    assert buffer.rows_of(7).size == 0
    assert buffer.newest_rollout_steps(np.array([7])).tolist() == [-1]
    assert (buffer.num_questions, buffer.num_trajectories, buffer.num_tokens) == (1, 1, 3)
    assert before == {path: path.read_bytes() for path in before}
    assert buffer.insert([success(7, [2], 9, rollout_step=4)]) == [InsertOutcome(3, 9, is_duplicate=False)]
    assert (buffer.bucket_of(7), buffer.rows_of(7).tolist(), buffer.num_trajectories) == (0, [3], 2)
    assert buffer.newest_rollout_steps(np.array([7])).tolist() == [4]


@pytest.mark.parametrize(
    ("trajectory", "message"),
    [
        (success(NUM_QUESTIONS, [1]), "question_index"),
        (success(0, []), "token_ids"),
        (success(0, [1, 2], log_probs=[-1.0]), "log_probs"),
        (success(0, [1, 2], log_probs=[-1.0, np.nan]), "log_probs"),
    ],
)
def test_unusable_trajectory_is_refused_and_nothing_of_the_call_is_stored(buffer, trajectory, message):
    with pytest.raises(ValueError, match=message):
        buffer.insert([success(3, [9]), trajectory])
    assert buffer.num_trajectories == buffer.num_questions == 0


def test_stored_tokens_take_eight_bytes_each_and_a_row_48(buffer, tmp_path):
    buffer.insert([success(i, range(600), i) for i in range(20)])
    buffer.seal()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 20 * (600 * 8 + 48)


def test_oldest_groups_leave_whole_and_a_question_with_its_last_one(buffer):
    buffer.insert([success(7, [1], 10, rollout_step=1), success(8, [1], 11, 1), success(8, [2], 12, 1)])
    buffer.insert([success(7, [2], 13, rollout_step=2), success(9, [1], 14, 2)])
    assert buffer.evict(oldest_step=0, capacity=5) == []
    assert buffer.evict(oldest_step=0, capacity=3) == [(7, 10), (8, 11), (8, 12)]
    assert (buffer.num_trajectories, buffer.num_questions) == (2, 2)
    assert [buffer.rows_of(question).tolist() for question in (7, 8, 9)] == [[3], [], [4]]
    assert (buffer.bucket_of(8), buffer.newest_rollout_steps(np.array([8])).tolist()) == (None, [-1])
    # What left is stored again when it comes again, and is no duplicate.
    again = buffer.insert([success(7, [1], 20, 3), success(7, [2], 21, 3)])
    assert [item.is_duplicate for item in again] == [False, True]
    assert buffer.rows_of(7).tolist() == [3, 5]
    buffer.retire(9)
    assert buffer.evict(oldest_step=3, capacity=None) == [(7, 13)]
    assert [item.trajectory_id for item in buffer.experiences(buffer.rows_of(7))] == [20]


@pytest.mark.parametrize("rows_at_once", [1, 2, 4096])
def test_a_group_leaves_whole_over_rows_between_that_were_refreshed_since(buffer, monkeypatch, rows_at_once):
    monkeypatch.setattr(replay_buffer, "_ROWS_AT_ONCE", rows_at_once)
    buffer.insert([success(7, [1], 10, 1), success(8, [1], 11, 1), success(8, [2], 12, 1), success(7, [2], 13, 1)])
    buffer.insert([success(7, [3], 14, rollout_step=2), success(9, [1], 15, 2)])
    buffer.refresh([1, 2, 5], [np.full(1, -0.25, dtype=np.float32)] * 3, 3)
    assert buffer.evict(oldest_step=0, capacity=5) == [(7, 10), (7, 13)]
    assert (buffer.num_trajectories, buffer.rows_of(7).tolist(), buffer.rows_of(8).tolist()) == (4, [4], [6, 7])
    assert buffer.evict(oldest_step=3, capacity=None) == [(7, 14)]
    assert buffer.evict(oldest_step=3, capacity=2) == [(8, 11), (8, 12)]
    assert [item.trajectory_id for item in buffer.experiences(buffer.rows_of(9))] == [15]


def test_a_buffer_that_forgets_its_old_segments_is_the_one_that_keeps_them(tmp_path):
    forgetting, keeping = empty_buffer(tmp_path / "a"), empty_buffer(tmp_path / "b")
    for step in range(1, 60):
        evicted, seen = [], []
        for buffer in (forgetting, keeping):
            buffer._store._segment_bytes = 400
            rng = np.random.default_rng(step)
            buffer.insert(random_successes(rng, 12, step, first_id=100 * step))
            rows = np.concatenate([buffer.rows_of(question)[-1:] for question in range(0, NUM_QUESTIONS, 7)])
            buffer.record_replays(rows)
            buffer.record_entropies(rows, rng.random(rows.size).astype(np.float32))
            buffer.retire(int(rng.integers(NUM_QUESTIONS)))
            evicted.append(buffer.evict(step - 6, 40))
        assert evicted[0] == evicted[1]
        if step % 5 == 0:
            forgetting.seal()
            forgetting.snapshot(tmp_path / "saved")
            forgetting.close()
            names = {extent.name for extent in forgetting._store.extents}
            forgetting = ReplayBuffer.restore(tmp_path / "a", tmp_path / "saved")
            remove_old_segments(tmp_path / "a", names)
            assert {path.stem for path in (tmp_path / "a").glob("*.rows")} == names
        for buffer in (forgetting, keeping):
            rows = [buffer.rows_of(question) for question in range(NUM_QUESTIONS)]
            numbers = [[item.trajectory_id for item in buffer.experiences(part)] for part in rows]
            flat = np.concatenate(rows)
            kept = buffer.num_replays(flat).tolist(), buffer.last_entropies(flat).tobytes()
            seen.append((numbers, *kept, buffer.num_trajectories, buffer.buckets_of(np.arange(NUM_QUESTIONS)).tolist()))
        assert seen[0] == seen[1]
    assert forgetting._index.num_rows < 200 < keeping._index.num_rows
    assert forgetting.num_tokens < keeping.num_tokens
    for buffer in (forgetting, keeping):
        buffer.close()
