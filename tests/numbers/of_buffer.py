"""What Run, Buffer and Run, Step should show."""

import re
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd

from tests.numbers.checking import Columns, Expected, Near, quoted
from tests.numbers.of_runs import curves_of, heatmap


def buffer_page(run):
    """Return what all parts of Buffer show after the last step, next to the step in the middle."""
    step, base = run.last_step, run.last_step // 2
    (stored, retired), (was_stored, was_retired) = run.state(step), run.state(base)
    now, then = f"step {step}", f"step {base}"
    figures: dict[str, dict[str, Columns]] = {
        "Bucket sizes": {f"after {now}": _sizes(run, stored), f"after {then}": _sizes(run, was_stored)},
        f"Draws of step {step}": _draws(run, step), "Entropy by bucket": _entropies(run, step),
        f"From step {base} to step {step}": {"": _flow((was_stored, was_retired), (stored, retired))},
        "Age of stored trajectories": {"": _bars(Counter(step - run.stored(step)["born"]))},
        "Replays of stored trajectories": {"": _bars(_replay_counts(run, step))}, "Buckets": {"": heatmap(run)},
        "Different answers": _answers(run),
    }  # fmt: skip
    figures |= curves_of(run, "Replay buffer and retired set")
    figures["Replays on the most replayed tenth"], sentence = _concentration(run)
    tables = {
        "Attempts, retired questions, those that only chance retires, and later attempts, by bucket": retired_table(run)
    }
    texts = [
        rf"\*\*{len(stored)}\*\* questions in the buffer, \*\*{len(retired)}\*\* retired",
        rf"\*\*Replays on the most replayed tenth\*\* .*share of all replays so far; {sentence}]]",
        rf"\*\*Draws of step {step}\*\* .*", rf"\*\*From step {base} to step {step}\*\* .*",
    ]  # fmt: skip
    return Expected({}, tables, figures, texts)


def _sizes(run, stored):
    return {"x": list(range(run.k + 1)), "y": [list(stored.values()).count(bucket) for bucket in range(run.k + 1)]}


def weights(run, step):
    """Return the probability of each bucket in a step: a Gaussian of k/K over those that hold questions."""
    settings, before = run.spec["algorithm"], Counter(run.state(step - 1)[0].values())
    rates = {k: k / run.k for k in range(1, run.k + 1) if before[k]}
    heights = {
        k: np.exp(-((rate - settings["bucket_center"]) ** 2) / (2 * settings["bucket_spread"] ** 2))
        for k, rate in rates.items()
    }
    return {k: height / sum(heights.values()) for k, height in heights.items()}


def _draws(run, step):
    chosen = run.selections[(run.selections["step"] == step) & run.selections["is_chosen"]]
    drawn, odds = Counter(chosen["bucket"]), weights(run, step)
    buckets = list(range(run.k + 1))
    return {
        "drawn": {"x": buckets, "y": [drawn[bucket] for bucket in buckets]},
        "expected": {"x": buckets, "y": [odds.get(bucket, 0.0) * len(chosen) for bucket in buckets]},
    }


def _entropies(run, step):
    rows = run.selections[run.selections["step"] > step - 10]
    parts = {"chosen": rows[rows["is_chosen"]], "not chosen": rows[~rows["is_chosen"]]}
    return {name: sorted_pairs(part["bucket"], part["entropy"]) for name, part in parts.items()}


def sorted_pairs(x, y):
    pairs = sorted(zip(x, y, strict=True))
    return {"x": [pair[0] for pair in pairs], "y": [pair[1] for pair in pairs]}


def _flow(then, now):
    def place(state, question):
        return (
            "retired"
            if question in state[1]
            else f"bucket {state[0][question]}"
            if question in state[0]
            else "not stored"
        )

    seen = {*then[0], *then[1], *now[0], *now[1]}
    counts = Counter(f"{place(then, question)} to {place(now, question)}" for question in seen)
    return {"x": sorted(counts), "value": [counts[way] for way in sorted(counts)]}


def _bars(counts):
    return {"x": sorted(counts), "y": [counts[value] for value in sorted(counts)]}


def _replay_counts(run, step):
    times = Counter(run.replayed["trajectory_id"][run.replayed["step"] <= step])
    return Counter(times[trajectory] for trajectory in run.stored(step)["trajectory"])


def last_box(text):
    """Return what the last box holds, nothing where it is not closed."""
    return text.rpartition("\\boxed{")[2].rpartition("}")[0].strip() if "\\boxed{" in text else ""


def _answers(run):
    rows = run.fresh.assign(box=run.fresh["text"].map(last_box))
    counts = rows.groupby(["step", "question_index"])["box"].nunique().reset_index()
    drawn = set(map(tuple, run.replayed[["step", "question_index"]].to_numpy().tolist()))
    is_drawn = pd.Series([key in drawn for key in zip(counts["step"], counts["question_index"], strict=True)])
    means = {"fresh": counts[~is_drawn], "replayed": counts[is_drawn]}
    return {
        name: {"x": list((mean := part.groupby("step")["box"].mean()).index), "y": mean.tolist()}
        for name, part in means.items()
    }


def _concentration(run):
    inserted = run.changes[run.changes["kind"] == "inserted"].groupby("question")["step"].min()
    rng, steps = np.random.default_rng(7), sorted(set(run.replayed["step"]))
    tops, evens = [], []
    for step in steps:
        counts = Counter(run.replayed["question_index"][run.replayed["step"] <= step])
        stored = set(inserted[inserted < step].index) | set(counts)
        total, num_top = sum(counts.values()), int(np.ceil(0.1 * len(stored)))
        tops.append(sum(count for _, count in counts.most_common(num_top)) / total)
        draws = rng.integers(0, len(stored), (4000, total))
        each = np.stack([np.bincount(draw, minlength=len(stored)) for draw in draws])
        evens.append(Near(np.sort(each, axis=1)[:, -num_top:].sum(axis=1).mean() / total, 0.04))
    sentence = f"{total} replays of {len(counts)} of {len(stored)} stored questions"
    return {"this run": {"x": steps, "y": tops}, "even draws": {"x": steps, "y": evens}}, sentence


def attempts(run):
    """Return one row a question and step at which it was rolled out: how many rollouts, how many were right."""
    groups = run.fresh.groupby(["question_index", "step"])["is_correct"]
    return groups.agg(num="size", right="sum").reset_index()


def retired_table(run):
    retirements = {
        (row.question, row.step): row.was for row in run.changes[run.changes["kind"] == "retired"].itertuples()
    }
    states = {step: run.state(step) for step in range(run.last_step + 1)}
    rows = []
    for attempt in attempts(run).itertuples():
        key = attempt.question_index, attempt.step
        earlier = [was for (question, step), was in retirements.items() if question == key[0] and step < key[1]]
        bucket = states[attempt.step - 1][0].get(attempt.question_index, -1)
        rows.append((earlier[-1] if earlier else bucket, bool(earlier), key in retirements, attempt.num, attempt.right))
    frame = pd.DataFrame(rows, columns=["bucket", "is_again", "retires", "num", "right"])
    lines = []
    for bucket in sorted(set(frame["bucket"])):
        first = frame[(frame["bucket"] == bucket) & ~frame["is_again"]]
        again = frame[(frame["bucket"] == bucket) & frame["is_again"]]
        lines.append({
            "Bucket before": "none" if bucket < 0 else str(int(bucket)), "Attempts": len(first),
            "Retired": int(first["retires"].sum()),
            "By chance": None if bucket < 0 else float(((bucket / run.k) ** first["num"]).sum()),
            "Tried again": len(again),
            "% correct again": 100 * again["right"].sum() / again["num"].sum() if len(again) else None,
            "% all correct again": 100 * (again["right"] == again["num"]).mean() if len(again) else None,
        })  # fmt: skip
    return pd.DataFrame(lines)


def step_page(run, question):
    """Return what Step shows of the last step, whose record contradicts nothing, and of a question that it replays."""
    step, drawn = run.last_step, weights(run, run.last_step)
    rows = run.rows[run.rows["step"] == step]
    scored = run.selections[run.selections["step"] == step]
    chosen = scored[scored["is_chosen"]].set_index("question")
    groups = pd.DataFrame(_groups(rows, scored, drawn))
    comparisons = _comparisons(run, rows, scored)
    num_by_stage = comparisons.groupby("Stage").size()
    tiles = {stage.title(): ("same", f"{count} comparison{'s' * (count > 1)}") for stage, count in num_by_stage.items()}
    bars = {
        name: {"x": part["trajectory"].astype(str).tolist(), "y": part["entropy"].tolist()}
        for name, part in (
            (name, scored[(scored["question"] == question) & (scored["is_chosen"] == flag)])
            for name, flag in (("chosen", True), ("not chosen", False))
        )
    }
    of_question, one = scored[scored["question"] == question], chosen.loc[question]
    sizes = Counter(run.state(step - 1)[0].values())
    texts = [
        f"{len(comparisons)} comparisons", f"All {run.rows['step'].nunique()} steps",
        rf"\*\*Groups of step {step}\*\*.*", rf"Groups of step {step}",
        rf"Question {question}", quoted(str(run.questions.loc[question, "prompt_text"])),
        rf"The question was in bucket {one['bucket']}, which held {sizes[one['bucket']]} questions? and had the "
        rf"probability {100 * drawn[one['bucket']]:.1f}%; {(chosen['bucket'] == one['bucket']).sum()} of them were "
        rf"drawn\. Of {len(of_question)} candidates? the method chose trajectory {one['trajectory']}, with an entropy "
        rf"of {one['entropy']:.3f} nats.*",
    ]  # fmt: skip
    tables = {
        "Comparisons of the step by stage": lambda shown: comparisons.loc[shown["Compared"]],
        "Groups of the step with rewards, advantages and what was replayed": groups,
        "Candidates": pd.DataFrame({
            "Trajectory": of_question["trajectory"], "Generated in step": of_question["rollout_step"],
            "Tokens": of_question["num_tokens"], "Entropy": of_question["entropy"], "NLL": of_question["nll"],
            "Score": of_question["entropy"],
        }),
        "Trajectories of the group": _of_group(rows[rows["question_index"] == question], step),
        "Every comparison of the group": lambda shown: shown.assign(Values=re.compile(_COMPARED)),
    }  # fmt: skip
    return Expected(tiles, tables, {"Candidates": bars}, texts)


_COMPARED = r"(trajectory \d+: )?recorded .*, computed .*|\d+ values?, largest difference 0"
"""The page compares these numbers itself."""


def _groups(rows, scored, drawn):
    found: list[dict[str, Any]] = []
    for question, part in rows.groupby("question_index"):
        replayed, of_question = part[part["is_replayed"]], scored[scored["question"] == question]
        num_fresh, chosen = len(part) - len(replayed), of_question[of_question["is_chosen"]]
        # Verdict and reward of each response, its advantage, the bucket and the number of trajectories afterwards.
        num_compared = 2 * num_fresh + len(part) + 2
        found.append({
            "Question": question,
            "Comparisons": f"{num_compared + (16 + 3 * len(of_question)) * len(replayed)} same",
            "Mean reward": part["reward"].mean(), "Mean |advantage|": part["advantage"].abs().mean(),
        })  # fmt: skip
        if len(replayed):
            [bucket], [age] = chosen["bucket"], part["step"].iloc[0] - chosen["rollout_step"]
            found[-1] |= {
                "Replayed": ", ".join(map(str, replayed["trajectory_id"])), "Age": age, "Bucket": bucket,
                "Probability": 100 * drawn[bucket], "Candidates": len(of_question),
                "Entropy": replayed["mean_entropy"].mean(), "Mean ratio": replayed["mean_ratio"].mean(),
                "Lowest other": of_question["entropy"][~of_question["is_chosen"]].min(),
            }  # fmt: skip
    return found


def _of_group(part, step):
    return pd.DataFrame({
        "Trajectory": part["trajectory_id"], "Age": (step - part["rollout_step"]).where(part["is_replayed"]),
        "Reward": part["reward"], "Advantage": part["advantage"], "Tokens": part["num_tokens"],
        "Entropy": part["mean_entropy"], "Mean ratio": part["mean_ratio"].astype(float),
    })  # fmt: skip


def _comparisons(run, rows, scored):
    """Return what is compared of a step, with the number of values: of questions, candidates, tokens or responses."""
    num_drawn, num_scored = scored["question"].nunique(), len(scored)
    num_tokens = int(scored["num_tokens"][scored["is_chosen"]].sum())
    num_groups, num_fresh = rows["question_index"].nunique(), int((~rows["is_replayed"]).sum())
    counts = {
        "selection": {
            "bucket sizes": run.k + 1,
            **dict.fromkeys(("bucket probabilities", "draws by bucket", "overflows by bucket"), run.k),
            **dict.fromkeys((
                "drawn questions", "bucket of a drawn question", "candidates", "number chosen",
                "replayed is the chosen", "best score is chosen", "one value for each token", "entropy", "NLL",
                "importance ratio", "entropy that chose", "NLL that chose",
            ), num_drawn),
            **dict.fromkeys(
                ("tokens of a candidate", "step that wrote a candidate", "score of a candidate"), num_scored
            ),
            "possible values": 3 * num_tokens,
            **dict.fromkeys(("same tokens as at rollout", "same log-probs as at rollout"), num_tokens),
            **dict.fromkeys(("bucket after the step", "trajectories stored"), num_groups),
        },
        "reward": {"verdict": num_fresh, "reward": num_fresh, "reward of a replayed trajectory": num_drawn},
        "advantages": {"advantage": len(rows)},
    }  # fmt: skip
    lines = [(stage, name, count) for stage, of_stage in counts.items() for name, count in of_stage.items()]
    table = pd.DataFrame(lines, columns=["Stage", "Compared", "Values"]).set_index("Compared", drop=False)
    return table.assign(Different=0, **{"Largest difference": Near(0.0, 0.0, 1e-4)})
