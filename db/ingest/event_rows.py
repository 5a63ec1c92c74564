"""From events to rows of tables."""

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Table

from exgrpo.db.ingest import conversations
from exgrpo.db.statistics import standard_error
from exgrpo.db.tables import models
from exgrpo.db.tables.column_types import storable_text
from exgrpo_core.recording.rows import Message, VoteOutcome
from exgrpo_core.sums import is_correct

INSERTED = "inserted"
"""The kind of buffer change by which a trajectory is stored."""

Row = dict[str, Any]

EVENTS_WITHOUT_ROWS = frozenset({"status", "config", "judging", "asked"})
"""Status and settings change rows of attempt and run; a judge's plan and cost are read by its resume only."""

_TRAJECTORY_BITS, _ATTEMPT_BITS, _RUN_BITS = 32, 12, 19
_MAX_SOURCE_CHARS = 200
_MAX_COUNT = 2**31 - 1


def trajectory_key(run_key: int, attempt: int, trajectory_id: int) -> int:
    """Return the one number of a trajectory in the whole database; it grows with time within a run.

    Raises:
        ValueError: A part is too large for its bits.
    """
    parts = ((run_key, _RUN_BITS), (attempt, _ATTEMPT_BITS), (trajectory_id, _TRAJECTORY_BITS))
    key = 0
    for value, bits in parts:
        if not 0 <= value < 1 << bits:
            raise ValueError(f"trajectory {trajectory_id} of attempt {attempt}: {value} does not fit into {bits} bits.")
        key = key << bits | value
    return key


def keys_of_run(run_key: int) -> tuple[int, int]:
    """Return the least number that a run's trajectory can have, and the least one of the next run's."""
    return trajectory_key(run_key, 0, 0), trajectory_key(run_key + 1, 0, 0)


class RowCollector:
    """Gathers the rows of a batch of events by table, so that each table is written at once."""

    def __init__(self, run_key: int) -> None:
        self.rows: dict[Table, list[Row]] = {}
        self._run_key = run_key

    def add(self, event: Mapping[str, Any]) -> None:
        """Gather the rows of one event; a status has none."""
        kind = event["kind"]
        if kind == "questions":
            self._add_questions(event)
        elif kind in {"step", "evaluation", "checkpoint"}:
            attempt, step = int(event["attempt"]), int(event["step"])
            self._step_key: Row = {"run_key": self._run_key, "attempt": attempt, "step": step}
            {"step": self._add_step, "evaluation": self._add_evaluation, "checkpoint": self._add_checkpoint}[kind](
                event
            )
        elif kind == "benchmark":
            for row in score_rows(self._run_key, event):
                self._put(models.benchmark_scores, row)
        elif kind == "votes":
            for vote in event["votes"]:
                self._put(models.judge_votes, judge_vote_row(self._run_key, vote))
        elif kind not in EVENTS_WITHOUT_ROWS:
            raise ValueError(f"unknown kind {kind!r}")

    def _put(self, table: Table, row: Row) -> None:
        self.rows.setdefault(table, []).append(row)

    def _add_questions(self, event: Mapping[str, Any]) -> None:
        for question in event["questions"]:
            row = {
                "run_key": self._run_key,
                "question_set": event["question_set"],
                "question_index": question["question_index"],
                "question_id": question["question_id"],
                "prompt_text": storable_text(question["prompt_text"]),
                "answer": storable_text(question["answer"]),
                "details": question["details"],
            }
            self._put(models.questions, row)

    def _add_step(self, event: Mapping[str, Any]) -> None:
        values = {storable_text(name): float(value) for name, value in event["metrics"].items()}
        row = {
            "at": datetime.fromisoformat(event["at"]),
            "is_replay_open": bool(event["is_replay_open"]),
            "is_finite": all(map(math.isfinite, values.values())),
            "notices": list(event["notices"]),
        }
        self._put(models.steps, self._step_key | row)
        for name, value in values.items():
            self._put(models.metrics, self._step_key | {"name": name, "value": value})
        self._add_buffer(event)
        for selection in event["selections"]:
            self._add_selection(selection)
        messages = [conversations.messages_of(trajectory) for trajectory in event["trajectories"]]
        stored = [change for change in event["buffer_events"] if change["kind"] == INSERTED]
        buckets = {change["trajectory_id"]: change["bucket_to"] for change in stored}
        rates = _group_rates(event["trajectories"])
        for trajectory, of_one in zip(event["trajectories"], messages, strict=True):
            file = trajectory.get("file", event["file"])
            row = {"correctness_rate": rates[trajectory["group_position"]], "file": file}
            row["bucket"] = buckets.get(trajectory["trajectory_id"])
            self._add_trajectory(trajectory, of_one, row)
        for replay in _with_positions_of_their_own(event["replays"], event["trajectories"]):
            self._add_replay(replay, event["file"])

    def _add_buffer(self, event: Mapping[str, Any]) -> None:
        names = ("bucket", "num_questions", "probability", "num_drawn", "overflow")
        for bucket in event["buckets"]:
            self._put(models.bucket_counts, self._step_key | {name: bucket[name] for name in names})
        names = ("kind", "question_index", "trajectory_id", "bucket_from", "bucket_to")
        for position, change in enumerate(event["buffer_events"]):
            row = {name: change[name] for name in names}
            self._put(models.buffer_changes, self._step_key | row | {"position": position})

    def _add_selection(self, selection: Mapping[str, Any]) -> None:
        question_index, chosen = selection["question_index"], selection["chosen"]
        trajectory_ids = selection["trajectory_ids"]
        if min(chosen) < 0:
            raise ValueError(f"chosen: expected positions of candidates, got {chosen}.")
        row = {
            "question_index": question_index,
            "bucket": selection["bucket"],
            "chosen_trajectory_id": trajectory_ids[chosen[0]],
        }
        self._put(models.selections, self._step_key | row)
        for position, trajectory_id in enumerate(trajectory_ids):
            candidate = {
                "question_index": question_index,
                "position": position,
                "trajectory_id": trajectory_id,
                "rollout_step": selection["rollout_steps"][position],
                "num_tokens": selection["num_tokens"][position],
                "entropy": float(selection["entropies"][position]),
                "nll": float(selection["nlls"][position]),
                "score": float(selection["scores"][position]),
                "is_chosen": position in chosen,
            }
            self._put(models.candidates, self._step_key | candidate)

    def _add_trajectory(self, trajectory: Mapping[str, Any], messages: Sequence[Message], row: Row) -> None:
        names = (
            "trajectory_id", "question_index", "group_position", "group_slot", "reward", "verdict", "is_valid",
            "has_code", "is_truncated", "num_tokens", "mean_entropy", "mean_log_prob", "advantage",
        )  # fmt: skip
        key = trajectory_key(self._run_key, self._step_key["attempt"], trajectory["trajectory_id"])
        row |= {name: trajectory[name] for name in names} | {"trajectory_key": key}
        row |= {name: trajectory.get(name) for name in ("code_rules", "has_python_block", "extra", "recorded_id")}
        row |= conversations.count_columns(messages)
        self._put(models.trajectories, self._step_key | row)
        text = {
            "trajectory_key": key,
            "run_key": self._run_key,
            "text": storable_text(trajectory["text"]),
        }
        self._put(models.trajectory_texts, text | conversations.text_columns(messages))

    def _add_replay(self, replay: Mapping[str, Any], file: str) -> None:
        names = (
            "group_position", "question_index", "trajectory_id", "rollout_step", "is_external", "reward", "advantage",
            "num_tokens", "mean_entropy", "mean_log_prob", "mean_ratio", "max_ratio",
        )  # fmt: skip
        self._put(models.replays, self._step_key | {name: replay[name] for name in names} | {"file": file})

    def _add_evaluation(self, event: Mapping[str, Any]) -> None:
        num_correct, num_samples = list(event["num_correct"]), int(event["samples_per_question"])
        rates = [count / num_samples for count in num_correct]
        row = {
            "question_set": event["question_set"],
            "at": datetime.fromisoformat(event["at"]),
            "samples_per_question": num_samples,
            "avg_at_n": statistics.fmean(rates) if rates else math.nan,
            "standard_error": standard_error(rates),
            "pass_at_n": statistics.fmean(count > 0 for count in num_correct) if rates else math.nan,
            "temperature": float(event["temperature"]),
            "seconds": float(event["seconds"]),
            "question_ids": list(event["question_ids"]),
            "num_correct": num_correct,
        }
        self._put(models.evaluations, self._step_key | row)

    def _add_checkpoint(self, event: Mapping[str, Any]) -> None:
        at = datetime.fromisoformat(event["at"])
        row = {"at": at, "path": event["path"], "num_bytes": int(event["num_bytes"])}
        self._put(models.checkpoints, self._step_key | row)


def _with_positions_of_their_own(
    replays: Sequence[Mapping[str, Any]], trajectories: Sequence[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """Yield replays with one group position each: those beyond the first of a group are numbered after all groups."""
    numbers = itertools.count(1 + max((row["group_position"] for row in (*replays, *trajectories)), default=-1))
    taken: set[int] = set()
    for replay in replays:
        position = replay["group_position"]
        yield replay if position not in taken else {**replay, "group_position": next(numbers)}
        taken.add(position)


def _group_rates(trajectories: Sequence[Mapping[str, Any]]) -> dict[int, float | None]:
    """Return the share of correct ones of each group's fresh trajectories, None where that is not known."""
    outcomes: dict[int, list[bool]] = {}
    for trajectory in trajectories:
        known, correct = outcomes.setdefault(trajectory["group_position"], []), is_correct(trajectory)
        known += [] if correct is None else [correct]
    return {name: statistics.fmean(outcome) if outcome else None for name, outcome in outcomes.items()}


def judge_vote_row(run_key: int, vote: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of one vote.

    Raises:
        ValueError: Its issues are no texts.
    """
    trajectory_id = vote["trajectory_id"]
    label = vote["label"]
    return {
        "run_key": run_key,
        "item_id": storable_text(str(vote["item_id"])),
        "vote": int(vote["vote"]),
        "source": str(vote["source"])[:_MAX_SOURCE_CHARS],
        "source_attempt": vote["source_attempt"],
        "trajectory_id": None if trajectory_id is None else int(trajectory_id),
        "outcome": VoteOutcome(vote["outcome"]),
        "reason": str(vote["reason"]),
        "issues": _texts(vote["issues"]),
        "label": None if label is None else bool(label),
        "judge": str(vote["judge"]),
        "prompt": str(vote["prompt"]),
        "num_requests": _count(vote["num_requests"]),
        "num_tokens": _count(vote["num_tokens"]),
        "answer": storable_text(str(vote["answer"])),
    }


def _count(value: object) -> int:
    """Return a count within the bounds of its column, 0 for what is none: a vote is shown, whatever it cost."""
    if not isinstance(value, int | float) or math.isnan(value):
        return 0
    return int(min(max(0, value), _MAX_COUNT))


def _texts(issues: object) -> list[str]:
    if not isinstance(issues, list | tuple) or not all(isinstance(issue, str) for issue in issues):
        raise ValueError("issues: expected a list of texts.")
    return list(issues)


def score_rows(run_key: int, event: Mapping[str, Any]) -> list[Row]:
    """Return one row per scheme: the mean over questions, with its standard error clustered over them."""
    num_samples = int(event["samples_per_question"])
    return [
        {
            "run_key": run_key,
            "benchmark": event["benchmark"],
            "scheme": scheme,
            "at": datetime.fromisoformat(event["at"]),
            "title": event["title"],
            "num_questions": len(num_correct),
            "samples_per_question": num_samples,
            **_score([count / num_samples for count in num_correct]),
            "question_ids": list(map(str, event["question_ids"])),
            "num_correct": list(map(int, num_correct)),
            "outcomes": {str(outcome): int(count) for outcome, count in event["outcomes"][scheme].items()},
            "comparability": _settings(event["comparability"]),
            "comparability_key": event["comparability_key"],
            "model": event["model"],
            "source_run_id": event["source_run_id"],
            "source_step": event["source_step"],
            "mean_tokens": float(event["mean_tokens"]),
            "truncated_share": float(event["truncated_share"]),
            "seconds": float(event["seconds"]),
            "reward_means": {str(name): float(mean) for name, mean in (event.get("reward_parts") or {}).items()},
        }
        for scheme, num_correct in event["num_correct"].items()
    ]


def _settings(parts: Mapping[str, Any]) -> Row:
    for name, value in parts.items():
        if not isinstance(value, str | int | float | None):
            raise ValueError(f"comparability: {name}: expected a text or a number, got {type(value).__name__}.")
    return dict(parts)


def _score(rates: Sequence[float]) -> Row:
    return {"score": statistics.fmean(rates), "standard_error": standard_error(rates)}
