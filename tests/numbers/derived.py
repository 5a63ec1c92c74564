"""What a run directory says, read by pandas alone: events, trajectories, the buffer as its changes make it."""

import json
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from tests.records import TYPES, lines_of, values_of

Z = 1.959964


def wilson(share, num):
    """Return both ends of Wilson's interval of a share of `num` items."""
    square = Z * Z
    middle = share + square / (2 * num)
    reach = Z * np.sqrt(share * (1 - share) / num + square / (4 * num * num))
    return max(0.0, (middle - reach) / (1 + square / num)), min(1.0, (middle + reach) / (1 + square / num))


def half_of_mean(values):
    """Return half of Student's 95% interval of a mean, None of fewer than two different values."""
    num = len(values)
    if num < 2 or np.ptp(values) < 1e-9:
        return None
    return float(stats.t.ppf(0.975, num - 1) * np.std(values, ddof=1) / np.sqrt(num))


class Score:
    """The score of questions, each answered `num_samples` times, from how many answers were right."""

    def __init__(self, num_correct, num_samples):
        shares = np.array(num_correct) / num_samples
        self.num_questions, self.num_samples, self.shares = len(shares), num_samples, shares
        self.mean = float(shares.mean())
        self.error = float(shares.std(ddof=1) / np.sqrt(len(shares)))
        added = np.concatenate([shares, [0.0, 0.0, 1.0, 1.0]])
        reach = Z * added.std() / np.sqrt(len(added))
        self.low, self.high = max(0.0, added.mean() - reach), min(1.0, added.mean() + reach)


def gain_ends(first, last):
    """Return the mean change of the same questions, both ends of 95% of its means over questions drawn anew, and p."""
    gaps = last.shares - first.shares
    generator = np.random.default_rng(0)
    means = [gaps[generator.integers(0, len(gaps), len(gaps))].mean() for _ in range(2000)]
    if np.ptp(means) < 1e-9:
        return float(gaps.mean()), np.nan, np.nan, 1.0
    low, high = np.percentile(means, [2.5, 97.5])
    rarer = min(np.mean(np.array(means) < 1e-9), np.mean(np.array(means) > -1e-9))
    return float(gaps.mean()), float(low), float(high), float(np.clip(2 * rarer, 0.001, 1))


class Recorded:
    """One run directory."""

    def __init__(self, path):
        self.path = path
        self.run_id = path.name
        self.spec = json.loads((path / "spec.json").read_text().replace('"../', f'"{path.parent}/'))
        self.info = json.loads((path / "run.json").read_text())
        self.events: list[dict[str, Any]] = lines_of(path)

    def of_kind(self, kind):
        return [event for event in self.events if event["kind"] == kind]

    @property
    def name(self):
        return str(self.info["name"])

    @property
    def k(self):
        return int(self.spec["algorithm"]["rollouts_per_question"])

    @cached_property
    def log(self):
        return [line.rstrip() for line in (self.path / "log.txt").read_text().splitlines()]

    @cached_property
    def metrics(self):
        """Metrics as the events have them, a row a step."""
        return pd.DataFrame({event["step"]: event["metrics"] for event in self.of_kind("step")}).T

    @cached_property
    def rows(self):
        tokens = {(line["step"], line["id"], line["is_replayed"]): line for line in self.of_kind("tokens")}
        rows = []
        for is_replayed, kind in ((False, "trajectory"), (True, "replay")):
            for line in self.of_kind(kind):
                kept = tokens.get((line["step"], line["trajectory_id"], is_replayed), {})
                values = {name: values_of(kept[name], name) if name in kept else None for name in TYPES}
                of_replays = {"rollout_step": line["step"], "mean_ratio": None, "max_ratio": None}
                rows.append({"is_replayed": is_replayed} | of_replays | line | line.get("extra", {}) | values)
        frame = pd.DataFrame(rows).drop(columns=["kind", "extra"], errors="ignore")
        return frame.sort_values(["step", "is_replayed"], kind="stable", ignore_index=True)

    @cached_property
    def fresh(self):
        frame = self.rows[~self.rows["is_replayed"]].copy()
        frame["is_correct"] = frame["verdict"] == "correct"
        groups = frame.groupby(["step", "question_index"])["is_correct"]
        frame["rate"], frame["size"] = groups.transform("mean"), groups.transform("size")
        return frame

    @cached_property
    def replayed(self):
        frame = self.rows[self.rows["is_replayed"]].copy()
        frame["ratios"] = [
            np.exp(np.asarray(now, np.float64) - np.asarray(then, np.float64))
            for now, then in zip(frame["log_probs"], frame["behavior_log_probs"], strict=True)
        ]
        frame["age"] = frame["step"] - frame["rollout_step"]
        return frame

    @cached_property
    def changes(self):
        names = {"question_index": "question", "trajectory_id": "trajectory", "bucket_from": "was", "bucket_to": "now"}
        rows = [{"step": event["step"], **row} for event in self.of_kind("step") for row in event["buffer_events"]]
        return pd.DataFrame(rows, columns=["step", "kind", *names]).rename(columns=names)

    @cached_property
    def selections(self):
        """A row a scored candidate, with `is_chosen`."""
        rows = []
        for event in self.of_kind("step"):
            for drawn in event["selections"]:
                columns = ("trajectory_ids", "rollout_steps", "num_tokens", "entropies", "nlls")
                for place, values in enumerate(zip(*(drawn[column] for column in columns), strict=True)):
                    head = (event["step"], drawn["question_index"], drawn["bucket"])
                    rows.append([*head, *values, place in drawn["chosen"]])
        names = [
            "step", "question", "bucket", "trajectory", "rollout_step", "num_tokens", "entropy", "nll", "is_chosen",
        ]  # fmt: skip
        return pd.DataFrame(rows, columns=names)

    @cached_property
    def buckets(self):
        rows = [{"step": event["step"], **row} for event in self.of_kind("step") for row in event["buckets"]]
        return pd.DataFrame(rows, columns=["step", "bucket", "num_questions", "probability", "num_drawn", "overflow"])

    def state(self, step):
        """Return the bucket of each stored question, and the retired ones, after a step."""
        stored: dict[int, int] = {}
        retired: set[int] = set()
        for change in self.changes[self.changes["step"] <= step].itertuples():
            if change.kind == "moved":
                stored[change.question] = int(change.now)
                retired.discard(change.question)
            elif change.kind == "retired":
                stored.pop(change.question, None)
                retired.add(change.question)
        return stored, retired

    def stored(self, step):
        """Return the trajectories of the questions that are stored after a step: `question`, `trajectory`, `born`."""
        buckets, _ = self.state(step)
        inserted = self.changes[(self.changes["kind"] == "inserted") & (self.changes["step"] <= step)]
        kept = inserted[inserted["question"].isin(list(buckets))]
        return kept.assign(born=kept["step"])

    def is_open(self, step):
        return any(event["step"] == step and event["is_replay_open"] for event in self.of_kind("step"))

    def scores(self, question_set="held_out"):
        """Return the score of each step at which a set of questions was evaluated."""
        return {
            event["step"]: Score(event["num_correct"], event["samples_per_question"])
            for event in self.of_kind("evaluation")
            if event["question_set"] == question_set
        }

    @property
    def last_step(self):
        return max(event["step"] for event in self.of_kind("step"))

    @cached_property
    def questions(self):
        """The training questions by their number."""
        sets = [line["questions"] for line in self.of_kind("questions") if line["question_set"] == "training"]
        return pd.DataFrame(sets[0]).set_index("question_index")

    @property
    def num_data(self):
        return len(self.questions)

    @property
    def is_training(self):
        return "algorithm" in self.spec

    @property
    def seconds(self):
        """Seconds from the first status to the end, which the outcome has: the last status is a little older."""
        [outcome] = self.path.glob("attempts/*/outcome.json")
        began, ended = self.of_kind("status")[0]["at"], json.loads(outcome.read_text())["at"]
        return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()

    @cached_property
    def derived_metrics(self):
        if not self.of_kind("trajectory"):
            return pd.DataFrame()
        of_steps = {step: dict([*self._of_fresh(step), *self._of_buffer(step)]) for step in self.metrics.index}
        return pd.DataFrame(of_steps).T

    @property
    def last(self):
        return (
            {} if not self.is_training or self.derived_metrics.empty else dict(self.derived_metrics.iloc[-1].dropna())
        )

    def _of_fresh(self, step):
        fresh, replayed = self.fresh[self.fresh["step"] == step], self.replayed[self.replayed["step"] == step]
        drawn = set(replayed["question_index"])
        is_drawn = fresh["question_index"].isin(drawn)
        yield "reward/mean", fresh["reward"].mean()
        yield "reward/pass_at_1", fresh["is_correct"].mean()
        if (~is_drawn).any():
            yield "reward/pass_at_1_fresh", fresh["is_correct"][~is_drawn].mean()
        if is_drawn.any():
            yield "reward/pass_at_1_replayed", fresh["is_correct"][is_drawn].mean()
        # Of the whole group, in which a replayed trajectory is a success.
        groups = fresh.groupby("question_index")["is_correct"].any()
        yield "reward/pass_at_k", (groups | groups.index.isin(drawn)).mean()
        yield "policy/entropy", np.average(fresh["mean_entropy"], weights=fresh["num_tokens"])
        yield "response/mean_tokens", fresh["num_tokens"].mean()
        yield "response/max_tokens", fresh["num_tokens"].max()
        yield "tokens/generated", fresh["num_tokens"].sum()
        so_far = self.fresh[self.fresh["step"] <= step]
        yield "tokens/generated_total", so_far["num_tokens"].sum()
        yield "rollouts/fresh_total", len(so_far)

    def _of_buffer(self, step):
        buckets, retired = self.state(step)
        if not self.spec["algorithm"]["experience_ratio"]:
            buckets = {}
        yield "buffer/num_questions", len(buckets)
        yield "buffer/num_retired", len(retired)
        yield "buffer/num_in_data", self.num_data
        yield "buffer/ever_solved_share", (len(buckets) + len(retired)) / self.num_data
        yield "buffer/num_trajectories", len(self.stored(step))
        yield "experience/num_inserted", ((self.changes["step"] == step) & (self.changes["kind"] == "inserted")).sum()
        replayed = self.replayed[self.replayed["step"] == step]
        scored = self.selections[self.selections["step"] == step]
        yield "replay/num_candidates", len(scored)
        yield "replay/num_replayed", len(replayed)
        yield "tokens/replayed", replayed["num_tokens"].sum()
        settings = self.spec["algorithm"]
        wanted = int(settings["experience_ratio"] * settings["batch_size"]) if self.is_open(step) else 0
        yield "replay/shortfall", wanted - len(replayed)
        if replayed.empty:
            return
        yield "replay/age_max", replayed["age"].max()
        yield "replay/age_mean", replayed["age"].mean()
        yield "replay/entropy_chosen", scored["entropy"][scored["is_chosen"]].mean()
        if not scored["is_chosen"].all():
            yield "replay/entropy_rejected", scored["entropy"][~scored["is_chosen"]].mean()
        beta = self.spec["algorithm"]["shaping_beta"]
        weights = beta * (ratios := np.concatenate(replayed["ratios"].to_list())) / (ratios + beta) ** 2
        yield "replay/gradient_weight_mean", weights.mean()
        for name, percent in (("median", 50), ("p10", 10), ("p90", 90)):
            yield f"replay/gradient_weight_{name}", np.percentile(weights, percent)
        whole = np.array([np.prod(row) for row in replayed["ratios"]])
        yield "variance/weight_max", whole.max()
        yield "variance/weight_mean", whole.mean()
        yield "variance/shaped_weight_mean", (whole / (whole + beta)).mean()


class Root:
    """All runs of a runs root, by id and by name."""

    def __init__(self, path):
        self.path = path
        runs = [Recorded(folder.parent) for folder in path.glob("*/run.json")]
        self.newest_first = sorted(runs, key=lambda run: run.info["created_at"], reverse=True)
        self.by_name = {run.run_id: run for run in runs} | {run.name: run for run in runs}

    def model_of(self, run):
        source = str(run.spec.get("model", {}).get("source", ""))
        return Path(source).name
