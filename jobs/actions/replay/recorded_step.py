"""Everything that a run recorded of one step and that its replay needs, from the database and the step's own lines."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from exgrpo.db.connections.session import Database
from exgrpo.db.queries import buffer, recorded_steps, selections
from exgrpo.db.rows.replays import BufferChangeRow, SelectionRow, StepTrajectoryRow, StoredRow
from exgrpo.db.rows.runs import BucketRow, CandidateRow
from exgrpo.jobs.runs.directory import RunDirectory, RunDirectoryError, inside
from exgrpo_core.bounded_json import UnreadableFileError, parse_json
from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.errors import InputError, NotRecordedError
from exgrpo_core.experience_management.storage.memory_index import ABSENT, BucketMembership
from exgrpo_core.methods.loading import build_part
from exgrpo_core.recording.lines import parse_token_arrays
from exgrpo_core.recording.record_file import member_bytes, read_member
from exgrpo_core.recording.report_lines import BASELINES, PREFIX_TOKENS, VERSION_COLUMN, WEIGHTS, read_state
from exgrpo_core.types import (
    PART_PREFIX,
    Baseline,
    Experience,
    GroupPlan,
    Int64Array,
    Question,
    Replay,
    RolloutGroup,
    Trajectory,
)

_NONE = np.empty(0, dtype=np.int32)
_NO_FLOATS = np.empty(0, dtype=np.float32)
_NO_TOKENS = {"token_ids": _NONE, "log_probs": _NO_FLOATS, "entropies": None, "behavior_log_probs": None}
Tokens = Mapping[str, Any]
"""Arrays of values of tokens by name; None of those that were not kept."""


class BucketsThen:
    """The buckets of a replay buffer before a step, as a question sampler sees them; other columns raise."""

    def __init__(self, moves: Iterable[tuple[int, int | None, int]], rollouts_per_question: int, until: int) -> None:
        self.rollouts_per_question = rollouts_per_question
        counted = [(index, bucket) for index, bucket, step in moves if step <= until]
        size = 1 + max((index for index, _ in counted), default=0)
        self._membership = BucketMembership(size, rollouts_per_question + 1)
        self.retired = set[int]()
        for index, bucket in counted:
            if bucket is None:
                self._membership.remove(index)
                self.retired.add(index)
            elif bucket == ABSENT:
                self._membership.remove(index)
            else:
                self._membership.move(index, bucket)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - it returns nothing
        raise NotRecordedError(f"{name}: a replay of a step knows the buckets only.")

    def questions(self) -> Int64Array:
        """Return the questions of buckets 1..K."""
        return np.flatnonzero(self._membership.is_member & (self._membership.buckets_of(slice(None)) > 0))  # type: ignore[arg-type]

    def bucket_sizes(self) -> Int64Array:
        """Return the questions in buckets 0..K."""
        return self._membership.sizes

    def buckets_of(self, question_indices: Int64Array) -> Int64Array:
        """Return the bucket of each question, -1 outside the buffer."""
        found = np.full(len(question_indices), ABSENT, dtype=np.int64)
        is_known = np.asarray(question_indices) < self._membership.is_member.size
        found[is_known] = self._membership.buckets_of(np.asarray(question_indices)[is_known])
        return found

    def bucket_of(self, question_index: int) -> int | None:
        """Return the bucket of a question, None outside the buffer."""
        bucket = int(self.buckets_of(np.array([question_index]))[0])
        return None if bucket == ABSENT else bucket

    def members(self, bucket: int) -> Int64Array:
        """Return a bucket's questions in the order of the state."""
        return self._membership.members(bucket)


@dataclass
class RecordedStep:
    """One step of one run; what is large is read when it is first asked for."""

    database: Database
    run: RunDirectory
    step: int

    @property
    def run_id(self) -> str:
        """The run's folder."""
        return self.run.run_id

    @cached_property
    def trajectories(self) -> list[StepTrajectoryRow]:
        """Fresh and replayed trajectories, by group, replayed ones last."""
        return recorded_steps.step_trajectories(self.database, self.run_id, self.step)

    @cached_property
    def groups(self) -> list[list[StepTrajectoryRow]]:
        """The same by group.

        The index gives each replay but the first of a group a place of its own, behind all groups.
        """
        home: dict[int, int] = {}
        found: dict[int, list[StepTrajectoryRow]] = defaultdict(list)
        for row in self.trajectories:
            position = row.group_position
            found[home.setdefault(row.question_index, position) if row.is_replayed else position].append(row)
        return list(found.values())

    @cached_property
    def selections(self) -> list[SelectionRow]:
        """What was chosen of each drawn question."""
        return selections.list_selections(self.database, self.run_id, self.step)

    @cached_property
    def candidates(self) -> dict[int, list[CandidateRow]]:
        """Candidates by question, oldest first."""
        found: dict[int, list[CandidateRow]] = defaultdict(list)
        for row in buffer.candidates(self.database, self.run_id, self.step):
            found[row.question_index].append(row)
        return found

    @cached_property
    def stored(self) -> dict[int, list[StoredRow]]:
        """What the buffer held of the drawn questions before the step, oldest first."""
        questions = [row.question_index for row in self.selections]
        found: dict[int, list[StoredRow]] = defaultdict(list)
        for row in buffer.stored_candidates(self.database, self.run_id, self.step, questions) if questions else ():
            found[row.question_index].append(row)
        return found

    @cached_property
    def buckets(self) -> list[BucketRow]:
        """The buckets that the step drew from."""
        return buffer.buckets_at(self.database, self.run_id, self.step)

    @cached_property
    def changes(self) -> list[BufferChangeRow]:
        """Changes of the buffer, in order."""
        return recorded_steps.changes_of(self.database, self.run_id, self.step)

    @cached_property
    def moves(self) -> list[tuple[int, int | None, int]]:
        """Moves of questions before the step, in order."""
        return recorded_steps.moves_until(self.database, self.run_id, self.step - 1)

    @property
    def is_ahead(self) -> bool:
        """Whether its questions were drawn in the step before."""
        return any(VERSION_COLUMN in row.extra for row in self.trajectories)

    @cached_property
    def line(self) -> Mapping[str, Any]:
        """The step's own line; empty where its file does not hold one."""
        for lines in self._lines.values():
            for line in lines:
                if line.startswith(b'{"kind":"step"') and (content := parse_json(line))["step"] == self.step:
                    return dict(content)
        return {}

    @cached_property
    def _lines(self) -> dict[str, list[bytes]]:
        """The lines of its files: one file, or several if it was recorded in parts."""
        return {part: self._read(part) for part in dict.fromkeys(_part(row.file)[0] for row in self.trajectories)}

    def rollout_groups(self, has_tokens: bool = False) -> list[RolloutGroup]:
        """Return the groups as the algorithm has them, without texts, and with tokens if asked."""
        others, weights = (self.line.get(name, {}) for name in (BASELINES, WEIGHTS))
        tokens = self.tokens if has_tokens else {}
        baselines = [others.get(str(rows[0].question_index), Baseline.TOGETHER) for rows in self.groups]
        groups = zip(self.groups, map(Baseline, baselines), strict=True)
        return [as_group(rows, baseline, weights, tokens) for rows, baseline in groups]

    @cached_property
    def tokens(self) -> dict[tuple[int, bool], Tokens]:
        """The values of the tokens of all of its trajectories, by trajectory and whether it was replayed."""
        return self._tokens({(row.trajectory_id, row.is_replayed): row.file for row in self.trajectories})

    @cached_property
    def random_state(self) -> dict[str, Any] | None:
        """State of the random generator before the draw, None where it is not recorded."""
        fields = self.line.get("random_state")
        return None if fields is None else read_state(fields)

    def tokens_at_rollout(self, files: Mapping[int, str]) -> dict[int, Tokens]:
        """Return the values of tokens of trajectories as they were rolled out, by trajectory; `files` says where."""
        found = self._tokens({(number, False): file for number, file in files.items()})
        return {number: values for (number, _), values in found.items()}

    def _tokens(self, files: Mapping[tuple[int, bool], str]) -> dict[tuple[int, bool], Tokens]:
        by_part: dict[str, dict[tuple[str | int, int | None], tuple[int, bool]]] = defaultdict(dict)
        for key, file in files.items():
            part, name = _part(file)
            by_part[part][name or key[0], self.step if key[1] else None] = key
        found: dict[tuple[int, bool], Tokens] = {}
        for part, wanted in by_part.items():
            with suppress(OSError, UnreadableFileError):
                arrays = parse_token_arrays(self.run.path / part, self._lines.get(part) or self._read(part), wanted)
                found |= {wanted[place]: values for place, values in arrays.items()}
        return found

    def _read(self, file: str) -> list[bytes]:
        path, begin = self._place(file)
        member = None if path is None else read_member(path, begin)
        return member.lines() if member else []

    def num_bytes(self, file: str) -> int:
        """Return how large the part of a file is that `tokens_at_rollout` would read."""
        path, begin = self._place(file)
        try:
            return 0 if path is None or file in self._lines else member_bytes(path, begin)
        except (OSError, UnreadableFileError):
            return 0

    def _place(self, file: str) -> tuple[Path | None, int]:
        name, _, begin = _part(file)[0].partition("@")
        try:
            return (inside(self.run.path, name), int(begin)) if begin else (None, 0)
        except RunDirectoryError:
            return None, 0


def _part(file: str) -> tuple[str, str]:
    """Return the place of a member of a file, and the id that a loop's trajectory has there, "" of an engine's."""
    path, at, place = file.partition("@")
    begin, _, name = place.partition(":")
    return f"{path}{at}{begin}", name


def as_group(
    rows: list[StepTrajectoryRow],
    baseline: Baseline,
    weights: Mapping[str, float],
    tokens: Mapping[tuple[int, bool], Tokens],
) -> RolloutGroup:
    """Return a recorded group as the algorithm has it, without values of tokens that are not given."""
    index = rows[0].question_index
    fresh, replays = [], []
    for row in rows:
        values = {**_NO_TOKENS, **tokens.get((row.trajectory_id, row.is_replayed), {})}
        if not row.is_replayed:
            fresh.append(as_trajectory(row, values))
            continue
        stored = Experience(
            0, row.trajectory_id, index, row.rollout_step or 0, row.reward, values["token_ids"],
            values["behavior_log_probs"],
        )  # fmt: skip
        weight = weights.get(str(row.trajectory_id), 1.0)
        scores = values["log_probs"], values["entropies"]
        replays.append(Replay(stored, *scores, row.is_external, weight, row.advantage))
    plan = GroupPlan(index, len(fresh), baseline=baseline)
    return RolloutGroup(Question(index, "", _NONE, "", ""), fresh, tuple(replays), plan=plan)


def as_trajectory(row: StepTrajectoryRow, values: Tokens, text: str = "") -> Trajectory:
    """Return a recorded rollout as the engine gave it."""
    return Trajectory(
        row.question_index,
        values["token_ids"],
        values["log_probs"],
        row.reward,
        text,
        row.verdict,
        bool(row.is_truncated),
        entropies=values["entropies"],
        sampler_log_probs=values["behavior_log_probs"],
        trajectory_id=row.trajectory_id,
        num_prefix_tokens=row.extra.get(PREFIX_TOKENS, 0),
        reward_parts={
            name.removeprefix(PART_PREFIX): value for name, value in row.extra.items() if name.startswith(PART_PREFIX)
        },
    )


def part_of(setting: str, config: ExGRPOConfig) -> Any:  # noqa: ANN401 - of the protocol of the setting
    """Return the part that a setting names, None of code that this machine does not know or allow."""
    try:
        return build_part(setting, config)
    except InputError:
        return None
