"""What Runs, a run's page and Compare should show."""

import json
import math
import re
from datetime import datetime

import pandas as pd
import yaml

from exgrpo.jobs.specs.train import TrainSpec
from tests.numbers import record
from tests.numbers.checking import Columns, Expected, quoted
from tests.numbers.derived import Score, gain_ends
from tests.numbers.words import long, number, pace, share

CURVES = {
    "Scores": {
        "reward/pass_at_k": "Batch Pass@K", "reward/pass_at_1": "Batch Pass@1",
        "reward/pass_at_1_fresh": "Fresh Pass@1",
        "reward/pass_at_1_replayed": "Replayed Pass@1",
    },
    "Entropy": {
        "policy/entropy": "fresh rollouts", "replay/entropy_chosen": "candidates chosen",
        "replay/entropy_rejected": "candidates not chosen",
    },
    "Response length": {"response/max_tokens": "longest", "response/mean_tokens": "mean of fresh rollouts"},
    "Replay buffer and retired set": {
        "buffer/num_questions": "replay buffer", "buffer/num_retired": "retired",
        "buffer/num_in_data": "all questions, |D|",
    },
    "Age of replayed trajectories": {"replay/age_max": "oldest", "replay/age_mean": "mean"},
    "Questions stored or retired": {"buffer/ever_solved_share": "in buffer or retired set"},
    "Replay": {
        "replay/num_replayed": "replayed", "replay/shortfall": "replay shortfall",
        "experience/num_inserted": "added to the buffer",
    },
    "Stored trajectories": {
        "buffer/num_trajectories": "stored", "replay/num_candidates": "candidates scored in the step",
    },
    "Importance ratio of replayed tokens": {
        "ratio/replayed_max": "largest", "ratio/replayed_mean": "mean", "ratio/shaped_mean": "mean of f(w)",
    },
    "Gradient weight of replayed tokens": {
        "replay/gradient_weight_p90": "90% quantile", "replay/gradient_weight_mean": "mean",
        "replay/gradient_weight_median": "median", "replay/gradient_weight_p10": "10% quantile",
        "replay/gradient_weight_young": "younger half", "replay/gradient_weight_old": "older half",
    },
    "Variance bounds of replayed gradients": {
        "variance/bound_general_loose": "A'", "variance/bound_general": "A",
        "variance/bound_independent_loose": "B'", "variance/bound_independent": "B",
    },
    "Sampler against trainer": {"generator/log_prob_gap_max": "largest", "generator/log_prob_gap": "mean"},
    "Effective sample size": {"ratio/replayed_ess": "effective sample size"},
    "Weights of whole replayed trajectories": {
        "variance/weight_max": "M: largest W", "variance/weight_mean": "E[W]",
        "variance/shaped_weight_mean": "E[f(W)]",
    },
    "Importance ratio of fresh tokens": {"ratio/fresh_max": "largest", "ratio/fresh_mean": "mean"},
    "Questions left in a mini-batch": {
        "batch/questions_left": "mean of the step's mini-batches", "batch/questions_left_min": "fewest",
    },
    "Loss": {"loss/policy": "policy term", "loss/total": "total", "loss/sft": "of demonstrations (SFT)"},
    "Updated tokens": {"optim/num_updated_tokens": "updated"},
    "Gradient norm": {"optim/gradient_norm": "gradient norm"},
    "Clipped fresh tokens": {"ratio/clip_share": "clipped"},
    "Skipped mini-batches": {"optim/num_skipped": "skipped"},
    "Time by phase": {
        "seconds/rollout": "rollout and grading", "seconds/score": "scoring candidates", "seconds/update": "update",
        "seconds/other": "everything else",
    },
    "Generated tokens": {"tokens/generated": "generated"},
    "Memory": {"system/process_memory_gib": "of the worker and its processes"},
    "Processor use": {"system/process_cores": "of the worker"},
}  # fmt: skip
"""Metric and name of each curve, by the title of its chart."""
NUM_LINES = 200
"""Lines of a log that are shown."""
COMPARED = {
    "Fresh Pass@1": "reward/pass_at_1_fresh", "Entropy": "policy/entropy",
    "Replay buffer": "buffer/num_questions", "Gradient norm": "optim/gradient_norm",
    "Response length": "response/mean_tokens", "Retired set": "buffer/num_retired", "Time of a step": "seconds/step",
}  # fmt: skip


def line(run, key):
    """Return the steps at which a metric is known, and its values there."""
    table = run.derived_metrics
    values = (table[key] if key in table else run.metrics[key] if key in run.metrics else pd.Series()).dropna()
    return {"x": values.index.tolist(), "y": values.tolist()}


LOGARITHMIC = {
    "Importance ratio of replayed tokens", "Importance ratio of fresh tokens", "Sampler against trainer",
    "Variance bounds of replayed gradients", "Weights of whole replayed trajectories",
}  # fmt: skip


def curves_of(run, *titles):
    return {title: dict(_curves(run, title)) for title in titles or CURVES}


def _curves(run, title):
    for key, name in CURVES[title].items():
        points = line(run, key)
        values = points["y"]
        num_hidden = sum(value <= 0 for value in values) if title in LOGARITHMIC else 0
        hidden = f" (of {len(values):,} points {num_hidden:,} zero or negative, not drawn)" if num_hidden else ""
        yield name + hidden, points


def held_out(run, scores=None):
    """Return held-out scores at the steps of their evaluations, with how far their intervals reach."""
    scores = run.scores() if scores is None else scores
    return {
        "x": list(scores), "y": [score.mean for score in scores.values()],
        "error_y.array": [score.high - score.mean for score in scores.values()],
        "error_y.arrayminus": [score.mean - score.low for score in scores.values()],
    }  # fmt: skip


HEAD = (r":blue-badge\[.* seed.*]",)
"""What stands above the tabs of a run."""


def run_page(run):
    last, scores = run.last, run.scores()
    is_scored = bool(scores)
    of_last = list(scores.values())[-1] if is_scored else None
    first = next(iter(scores.values())) if is_scored else None
    tiles = {"Time taken": (long(run.seconds), f"{pace(run.metrics['seconds/step'].mean())} per step")}
    if "loss/sft" in run.metrics:
        newest = run.metrics.iloc[-1]
        tiles["SFT loss"] = number(newest["loss/sft"]), f"step {run.last_step}"
        tiles["Gradient norm"] = number(newest["optim/gradient_norm"]), ""
    if "buffer/num_retired" in last:
        tiles["Retired"] = number(last["buffer/num_retired"]), ""
    if "reward/pass_at_1" in last:
        num_rollouts = int((run.fresh["step"] == run.last_step).sum())
        tiles["Batch Pass@1"] = share(last["reward/pass_at_1"]), f"step {run.last_step}, {num_rollouts} rollouts"
        stored = f"{number(last['buffer/num_trajectories'])} stored, {number(last['replay/num_replayed'])} replayed"
        tiles["Replay buffer"] = number(last["buffer/num_questions"]), stored
    if of_last is not None and first is not None:
        interval = f"{100 * of_last.low:.0f} to {100 * of_last.high:.0f}% of {of_last.num_questions}"
        gain, low, high, _ = gain_ends(first, of_last)
        reach = "" if math.isnan(low) else f" ({100 * low:.1f} to {100 * high:.1f})"
        below = f"{100 * gain:+z.1f}{reach} · {interval}"
        tiles[f"Held-out Avg@{of_last.num_samples}"] = share(of_last.mean), below
    figures = curves_of(run)
    if "reward/pass_at_1" in last:
        figures["Rewards"] = {"": rewards(run)}
    if is_scored:
        figures["Scores"][f"Held-out Avg@{of_last.num_samples}"] = held_out(run)  # type: ignore[union-attr]
    if "replay/num_replayed" in last and not run.replayed.empty:
        figures["Importance ratios by trajectory"] = ratio_bands(run)
        figures["Buckets"] = {"": heatmap(run)}
    kept = rf".*/{run.run_id}/checkpoints/step-{run.last_step:08d}"
    progress = rf"Step {run.last_step} of {run.spec['num_steps']} · 100%"
    texts = [progress, rf"exgrpo export {run.run_id}@{run.last_step} FOLDER", kept]
    return Expected(tiles, attempts(run) | changes(run), figures, [*texts, *files(run)])


def files(run, words=""):
    """Return the texts of a job's specification and of the end of its log, or of its lines with these words."""
    lines = [(number, text) for number, text in enumerate(run.log, 1) if words in text.lower()]
    shown = [f"{number:>6,}  {text}" if words else text for number, text in lines[-NUM_LINES:]]
    num = f"Last {NUM_LINES}" if len(lines) > NUM_LINES else str(len(lines))
    of = f" of {len(lines):,}" if words and len(lines) > NUM_LINES else ""
    return [
        quoted(yaml.safe_dump(run.spec, sort_keys=False, allow_unicode=True)), quoted("\n".join(shown)),
        rf"{num}{of} {'line' if len(lines) == 1 else 'lines'} of `log.txt`" + (" with these words" if words else ""),
    ]  # fmt: skip


def changes(run):
    """Return the fields that are not as a specification has them that says nothing."""
    rows = differing([TrainSpec().model_dump(mode="json"), run.spec], ("Before", "This run"), frozenset({"kind"}))
    return {"Fields that differ from the defaults": rows}


def ratio_bands(run):
    means = run.replayed.groupby("step")["mean_ratio"]
    names = {"0%": 0.0, "least to largest": 1.0, "25%": 0.25, "middle half": 0.75, "median": 0.5}
    return {name: {"x": list(means.groups), "y": means.quantile(level).tolist()} for name, level in names.items()}


def rewards(run):
    counts = run.fresh.groupby(["reward", "step"]).size().unstack(fill_value=0)
    names = [f"{value:g}" for value in counts.index]
    return {"x": counts.columns.tolist(), "y": names, "z": counts.to_numpy().tolist()}


def heatmap(run):
    steps = sorted(set(run.buckets["step"]))
    names = [f"{bucket}/{run.k}" for bucket in range(run.k)]
    sizes = [list(run.state(step - 1)[0].values()) for step in steps]
    counts = [[size.count(bucket) for size in sizes] for bucket in range(run.k)]
    return {"x": steps, "y": names, "z": counts}


def attempts(run):
    def exact(at):
        return f"{datetime.fromisoformat(at):%Y-%m-%d %H:%M:%S} UTC"

    statuses = run.of_kind("status")
    outcome = json.loads((run.path / "attempts" / "0001" / "outcome.json").read_text())
    kept = {event["step"]: event for event in run.of_kind("checkpoint") if (run.path / event["path"]).is_dir()}
    return {
        "Attempts of the run": pd.DataFrame(
            {"Attempt": [1], "Started": [exact(statuses[0]["at"])], "Ended": [exact(outcome["at"])]}
        ),
        "Checkpoints of the run": pd.DataFrame({
            "Step": list(kept),
            "Size": [size(folder_bytes(run.path / event["path"])) for event in kept.values()],
            "Written": [exact(event["at"]) for event in kept.values()],
            "Path in the run directory": [event["path"] for event in kept.values()],
        }),
    }  # fmt: skip


def folder_bytes(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and file.name != "manifest.json")


def size(num_bytes):
    for unit in ("B", "kB", "MB"):
        if num_bytes < 1000:
            return f"{num_bytes:.0f} B" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.1f} GB"


def runs_page(root):
    rows = root.newest_first
    scores = [list(run.scores().values()) for run in rows]
    table = pd.DataFrame({
        "Progress": [100.0 if run.events else 0.0 for run in rows],
        "Curve": [
            [100 * value for value in run.derived_metrics.get("reward/pass_at_1", pd.Series(dtype=float)).dropna()]
            if run.is_training else [] for run in rows
        ],
        "Held-out Avg@n": [100 * item[-1].mean if item else None for item in scores],
        "Scores": list(map(_benchmark_score, rows)),
        "Tags": [record.tags_of(run.run_id) for run in rows],
        "Created": [re.compile(r"\d+ (s|min|h) ago|just now")] * len(rows),
    })  # fmt: skip
    alt = "Table of runs with state, progress, time left, batch Pass@1 and its curve, held-out score and health"
    texts = [f"{len(rows)} of {len(rows)} runs, 0 active", r"0 running, 0 queued · .*"]
    return Expected({}, {alt: table}, {}, texts)


def _benchmark_score(job):
    events = job.of_kind("benchmark")
    if not events:
        return ""
    [event] = events
    score = Score(event["num_correct"]["paper"], event["samples_per_question"])
    return f"{event['benchmark']} {100 * score.mean:.1f} ({100 * score.low:.1f} to {100 * score.high:.1f})"


def compare_page(runs):
    figures: dict[str, dict[str, Columns]] = {
        title: {run.name: line(run, key) for run in runs} for title, key in COMPARED.items()
    }
    figures["Held-out Avg@n"] = {}
    for run in runs:
        scores = run.scores()
        for end, name in (("mean", run.name), ("low", f"{run.name}, 95% from"), ("high", f"{run.name}, 95% to")):
            ends = [getattr(score, end) for score in scores.values()]
            figures["Held-out Avg@n"][name] = {"x": list(scores), "y": ends}
    return Expected({}, {
        "Newest scores and figures of every run": pd.DataFrame(list(map(_final, runs))),
        "Memory of the replay buffer, seconds per step and fresh rollouts of every run": costs(runs),
        "Settings in which the runs differ": differing([run.spec for run in runs], [run.name for run in runs]),
    }, figures)  # fmt: skip


def _final(run):
    last, scores = run.derived_metrics.iloc[-1], list(run.scores().values())
    gain, low, high, _ = gain_ends(scores[0], scores[-1])
    return {
        "Steps": run.last_step, "Fresh Pass@1": 100 * last["reward/pass_at_1_fresh"],
        "Held-out Avg@n": 100 * scores[-1].mean,
        "95% interval": f"{100 * scores[-1].low:.1f} to {100 * scores[-1].high:.1f}",
        "Questions": scores[-1].num_questions,
        "Gain": 100 * gain, "Gain's 95% interval": None if math.isnan(low) else f"{100 * low:.1f} to {100 * high:.1f}",
        "Entropy": last["policy/entropy"],
        "Mean tokens": last["response/mean_tokens"], "Buffer": last["buffer/num_questions"],
        "Retired": last["buffer/num_retired"],
        "Generated tokens": run.fresh["num_tokens"].sum(), "Minutes of steps": run.metrics["seconds/step"].sum() / 60,
    }  # fmt: skip


def costs(runs):
    rows = []
    for run in runs:
        seconds, replays = run.metrics["seconds/step"], bool(run.spec["algorithm"]["experience_ratio"])
        batch = run.spec["algorithm"]["batch_size"]
        last = run.metrics.iloc[-1]
        rows.append({
            "Index, MB": last["buffer/memory_bytes"] / 1e6 if replays else None,
            "Files, MB": last["buffer/file_bytes"] / 1e6 if replays else None,
            "Trajectories": len(run.stored(run.last_step)) if replays else None,
            "Peak step, s": seconds.max(), "Min. step, s": seconds.min(), "Avg. step, s": seconds.mean(),
            "Fresh questions": batch - run.replayed.groupby("step")["question_index"].nunique().sum() / len(seconds),
            "Fresh rollouts": len(run.fresh),
            "Per step": len(run.fresh) / len(seconds),
            "Of on-policy": 100 * len(run.fresh) / (batch * run.k * len(seconds)), "Overhead": None, "replays": replays,
        })  # fmt: skip
    [base] = [row for row in rows if not row["replays"]][:1] or [None]
    for row in rows:
        if base is not None and row is not base:
            parts = [
                f"{100 * (row[name] / base[name] - 1):+z.1f}%"
                for name in ("Peak step, s", "Min. step, s", "Avg. step, s")
            ]
            row["Overhead"] = " / ".join(parts)
    return pd.DataFrame(rows)


NOT_COMPARED = frozenset({"name", "tags", "preset", "kind"})


def differing(specs, names, left_out=NOT_COMPARED):
    flat = [dict(spec_fields(spec)) for spec in specs]
    paths = dict.fromkeys(path for fields in flat for path in fields)
    rows = []
    for path in paths:
        values = [fields.get(path) for fields in flat]
        if path not in left_out and len({repr(value) for value in values}) > 1:
            rows.append({"Field": path} | {name: option(value) for name, value in zip(names, values, strict=True)})
    return pd.DataFrame(rows)


def spec_fields(spec, before=""):
    for name, value in spec.items():
        if isinstance(value, dict) and value and name != "sft":
            yield from spec_fields(value, f"{before}{name}.")
        else:
            yield before + name, value


def option(value):
    return value if isinstance(value, str) else json.dumps(value)
