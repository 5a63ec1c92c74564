"""What Run, Buffer and Run, Step should show."""

import re
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd

from tests.numbers.checking import Columns, Expected, Near
from tests.numbers.derived import Recorded, half_of_mean
from tests.numbers.of_runs import curves_of, heatmap


def buffer_page(run: Recorded) -> Expected:
    """Return what all parts of Buffer show after the last step, next to the step in the middle."""
    step, base = run.last_step, run.last_step // 2
    (stored, retired), (was_stored, was_retired) = run.state(step), run.state(base)
    now, then = f"step {step}", f"step {base}"
    figures: dict[str, dict[str, Columns]] = {
        "Bucket sizes": {f"after {now}": _sizes(run, stored), f"after {then}": _sizes(run, was_stored)},
        f"Draws of step {step}": _draws(run, step),
        "Entropy by bucket": _entropies(run, step),
        f"From step {base} to step {step}": {"": _flow((was_stored, was_retired), (stored, retired))},
        "Age of stored trajectories": {"": _bars(Counter(step - run.stored(step)["born"]))},
        "Replays of stored trajectories": {"": _bars(_replay_counts(run, step))},
        "Buckets": {"": heatmap(run)},
        "Different answers": _answers(run),
        "Bucket probabilities": dict.fromkeys(("recorded", "what if"), _probabilities(run, step)),
    }  # fmt: skip
    figures |= curves_of(run, "Replay buffer and retired set")
    steps = sorted(set(run.replayed["step"]))
    changed = f"Draws that change: 0.0% over {len(steps)} steps"
    figures[changed] = {"share that changes": {"x": steps, "y": [0.0] * len(steps)}}
    figures["Replays on the most replayed tenth"], sentence = _concentration(run)
    tables = {
        "Attempts, retired questions, those that only chance retires, and later attempts, by bucket": retired_table(
            run
        ),
        "Questions with the recorded and the other choice": _unchanged(run, step),
    }
    num_drawn = run.selections[run.selections["step"] == step]["question"].nunique()
    texts = [
        rf"\*\*{len(stored)}\*\* questions in the buffer, \*\*{len(retired)}\*\* retired",
        rf"\*\*Nothing changes:\*\* the same {num_drawn} questions and trajectories\.",
        rf"\*\*Replays on the most replayed tenth\*\* .*share of all replays so far; {sentence}]]",
        rf"\*\*{changed}\*\* .*", rf"\*\*Step {step}\*\*",
        rf"\*\*Draws of step {step}\*\* .*", rf"\*\*From step {base} to step {step}\*\* .*",
    ]  # fmt: skip
    return Expected({}, tables, figures, texts)


def _sizes(run: Recorded, stored: dict[int, int]) -> Columns:
    return {"x": list(range(run.k + 1)), "y": [list(stored.values()).count(bucket) for bucket in range(run.k + 1)]}


def weights(run: Recorded, step: int) -> dict[int, float]:
    """Return the probability of each bucket in a step: a Gaussian of k/K over those that hold questions."""
    settings, before = run.spec["algorithm"], Counter(run.state(step - 1)[0].values())
    rates = {k: k / run.k for k in range(1, run.k + 1) if before[k]}
    heights = {
        k: np.exp(-((rate - settings["bucket_center"]) ** 2) / (2 * settings["bucket_spread"] ** 2))
        for k, rate in rates.items()
    }
    return {k: height / sum(heights.values()) for k, height in heights.items()}


def _draws(run: Recorded, step: int) -> dict[str, Columns]:
    chosen = run.selections[(run.selections["step"] == step) & run.selections["is_chosen"]]
    drawn, odds = Counter(chosen["bucket"]), weights(run, step)
    buckets = list(range(run.k + 1))
    return {
        "drawn": {"x": buckets, "y": [drawn[bucket] for bucket in buckets]},
        "expected": {"x": buckets, "y": [odds.get(bucket, 0.0) * len(chosen) for bucket in buckets]},
    }


def _probabilities(run: Recorded, step: int) -> Columns:
    odds = weights(run, step)
    return {"x": list(range(1, run.k + 1)), "y": [odds.get(bucket, 0.0) for bucket in range(1, run.k + 1)]}


def _entropies(run: Recorded, step: int) -> dict[str, Columns]:
    rows = run.selections[run.selections["step"] > step - 10]
    parts = {"chosen": rows[rows["is_chosen"]], "not chosen": rows[~rows["is_chosen"]]}
    return {name: sorted_pairs(part["bucket"], part["entropy"]) for name, part in parts.items()}


def sorted_pairs(x: Any, y: Any) -> Columns:
    pairs = sorted(zip(x, y, strict=True))
    return {"x": [pair[0] for pair in pairs], "y": [pair[1] for pair in pairs]}


State = tuple[dict[int, int], set[int]]


def _flow(then: State, now: State) -> Columns:
    def place(state: State, question: int) -> str:
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


def _bars(counts: Counter[int]) -> Columns:
    return {"x": sorted(counts), "y": [counts[value] for value in sorted(counts)]}


def _replay_counts(run: Recorded, step: int) -> Counter[int]:
    times = Counter(run.replayed["trajectory_id"][run.replayed["step"] <= step])
    return Counter(times[trajectory] for trajectory in run.stored(step)["trajectory"])


def last_box(text: str) -> str:
    """Return what the last box holds, nothing where it is not closed."""
    return text.rpartition("\\boxed{")[2].rpartition("}")[0].strip() if "\\boxed{" in text else ""


def _answers(run: Recorded) -> dict[str, Columns]:
    rows = run.fresh.assign(box=run.fresh["text"].map(last_box))
    counts = rows.groupby(["step", "question_index"])["box"].nunique().reset_index()
    drawn = set(map(tuple, run.replayed[["step", "question_index"]].to_numpy().tolist()))
    is_drawn = pd.Series([key in drawn for key in zip(counts["step"], counts["question_index"], strict=True)])
    means = {"fresh": counts[~is_drawn], "replayed": counts[is_drawn]}
    return {
        name: {"x": list((mean := part.groupby("step")["box"].mean()).index), "y": mean.tolist()}
        for name, part in means.items()
    }


def _concentration(run: Recorded) -> tuple[dict[str, Columns], str]:
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


def attempts(run: Recorded) -> pd.DataFrame:
    """Return one row a question and step at which it was rolled out: how many rollouts, how many were right."""
    groups = run.fresh.groupby(["question_index", "step"])["is_correct"]
    return groups.agg(num="size", right="sum").reset_index()


def retired_table(run: Recorded) -> pd.DataFrame:
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


def _unchanged(run: Recorded, step: int) -> pd.DataFrame:
    rows = run.selections[(run.selections["step"] == step) & run.selections["is_chosen"]].sort_values("question")
    return pd.DataFrame({
        "Question": rows["question"], "Bucket": rows["bucket"], "Replayed": rows["trajectory"],
        "Would replay": rows["trajectory"], "Entropy": rows["entropy"], "NLL": rows["nll"],
        "Age of scores": [0] * len(rows),
    })  # fmt: skip


def audit_page(run: Recorded) -> Expected:
    """Return what the parts of Step show of the last step."""
    step = run.last_step
    scored = run.selections[run.selections["step"] == step]
    replayed = run.replayed[run.replayed["step"] == step].set_index("question_index")
    chosen = scored[scored["is_chosen"]].sort_values("question")
    rows = replayed.loc[chosen["question"]]
    table = pd.DataFrame({
        "Question": chosen["question"].tolist(), "Checks": [re.compile(r"([1-9]\d*) of \1 pass")] * len(chosen),
        "Bucket": chosen["bucket"].tolist(),
        "Candidates": scored.groupby("question").size().loc[chosen["question"]].tolist(),
        "Chosen": chosen["trajectory"].tolist(), "Age": (step - chosen["rollout_step"]).tolist(),
        "Entropy": chosen["entropy"].tolist(),
        "Entropy recomputed": [float(np.mean(np.asarray(item, np.float64))) for item in rows["entropies"]],
        "NLL recomputed": [-float(np.mean(np.asarray(item, np.float64))) for item in rows["log_probs"]],
        "Mean ratio": [float(item.mean()) for item in rows["ratios"]], "Tokens": chosen["num_tokens"].tolist(),
    })  # fmt: skip
    effects = draw_effects(run)
    names = effects["Questions"].tolist()
    figures: dict[str, dict[str, Columns]] = {
        "Drawn against undrawn": {
            trace: {"y": names, "x": effects[value], "error_x.array": effects[f"{value}, half"]}
            for trace, value in (("next attempts only", "plain"), ("retired counted as solved", "solved"))
        }
    }
    tables = {
        "Selections of the step with recorded and recomputed scores and the result of the checks": table,
        "Drawn and undrawn questions by group, their changes, and the difference with its interval": effects,
        "Mean, shaped mean, mean square and largest weight of trajectories by age and entropy": weight_table(run),
    }
    verified = rf".*\*\*[\d,]+ checks of step {step} pass\*\*.*"
    return Expected({}, tables, figures, [verified])


def observations(run: Recorded) -> pd.DataFrame:
    """Return one row a question that a replaying step could draw: those drawn, and those not tried in it."""
    tried = {question: rows.set_index("step") for question, rows in attempts(run).groupby("question_index")}
    chosen = run.selections[run.selections["is_chosen"]].set_index(["step", "question"])["entropy"]
    retired = {(row.step, row.question) for row in run.changes[run.changes["kind"] == "retired"].itertuples()}
    rows = []
    for step in sorted(set(chosen.index.get_level_values(0))):
        for question, bucket in run.state(step - 1)[0].items():
            is_drawn = (step, question) in chosen.index
            of_question = tried[question]
            if bucket <= 0 or (not is_drawn and step in of_question.index):
                continue
            before = [other for other in of_question.index if other < step]
            after = [other for other in of_question.index if other > step]
            following = of_question.loc[after[0]] if after else None
            rate = np.nan if following is None else following["right"] / following["num"]
            rows.append((
                step, question, bucket, is_drawn, is_drawn and (step, question) in retired, step - before[-1],
                after[0] - step if after else np.nan, rate, chosen.get((step, question), np.nan),
            ))  # fmt: skip
    names = ["step", "question", "bucket", "is_drawn", "retires", "idle", "wait", "rate", "entropy"]
    return pd.DataFrame(rows, columns=names)


def _effect(rows: pd.DataFrame, values: pd.Series) -> tuple[float, float, float, float]:
    """Return the means of drawn and undrawn rows, their difference and its standard error.

    By least squares with a constant for each step and bucket; errors are clustered by question.
    """
    rows, values = rows[values.notna()], values[values.notna()]
    strata = rows.groupby(["step", "bucket"]).ngroup().to_numpy()
    drawn = rows["is_drawn"].to_numpy(float)
    sizes = pd.DataFrame({"stratum": strata, "drawn": drawn, "value": values.to_numpy()})
    both = sizes.groupby("stratum").filter(lambda part: 0 < part["drawn"].mean() < 1)
    if both.empty:
        return (np.nan,) * 4
    means = both.groupby(["stratum", "drawn"])["value"].agg(["mean", "size"]).unstack()
    weight = means["size"][0.0] * means["size"][1.0] / (means["size"][0.0] + means["size"][1.0])
    dummies = np.eye(strata.max() + 1)[strata]
    design = np.column_stack([drawn, dummies])
    solution = np.linalg.lstsq(design, values.to_numpy(), rcond=None)[0]
    centred = drawn - dummies @ np.linalg.lstsq(dummies, drawn, rcond=None)[0]
    scores = pd.Series(centred * (values.to_numpy() - design @ solution)).groupby(rows["question"].to_numpy()).sum()
    error = np.sqrt(len(scores) / max(1, len(scores) - 1) * (scores**2).sum()) / (centred**2).sum()
    return (
        float((weight * means["mean"][1.0]).sum() / weight.sum()),
        float((weight * means["mean"][0.0]).sum() / weight.sum()), float(solution[0]), float(error),
    )  # fmt: skip


def draw_effects(run: Recorded) -> pd.DataFrame:
    seen = observations(run)
    drawn = seen[seen["is_drawn"]]
    idle, entropy = drawn["idle"].median(), drawn["entropy"].median()
    groups = {"all": seen["step"] > 0}
    groups |= {f"bucket {bucket}": seen["bucket"] == bucket for bucket in sorted(set(drawn["bucket"]))}
    groups |= {f"tried within {idle:.0f} steps": seen["idle"] <= idle, "tried longer ago": seen["idle"] > idle}
    groups["replay of lower entropy"] = ~seen["is_drawn"] | (seen["entropy"] <= entropy)
    groups["replay of higher entropy"] = ~seen["is_drawn"] | (seen["entropy"] > entropy)
    return pd.DataFrame([_effect_row(name, seen[mask], run.k) for name, mask in groups.items()])


def _effect_row(name: str, part: pd.DataFrame, k: int) -> dict[str, object]:
    solved = part["retires"] & part["rate"].isna()
    change = part["rate"] - part["bucket"] / k
    with_solved = change.where(~solved, 1.0 - part["bucket"] / k)
    mean_drawn, mean_undrawn, plain, error = _effect(part, change)
    wait_drawn, wait_undrawn, *_ = _effect(part, part["wait"])
    *_, whole, whole_error = _effect(part, with_solved)

    def text(value: float, half: float) -> str:
        reach = f" ± {196 * half:.1f}" if half > 1e-9 else ""
        return "\N{EN DASH}" if np.isnan(value) else f"{100 * value:+z.1f}{reach}"

    return {
        "Questions": name, "Drawn": int((part["is_drawn"] & part["rate"].notna()).sum()),
        "Undrawn": int((~part["is_drawn"] & part["rate"].notna()).sum()), "Retired": int(solved.sum()),
        "Change in points, drawn": 100 * mean_drawn, "Change in points, undrawn": 100 * mean_undrawn,
        "Steps, drawn": wait_drawn, "Steps, undrawn": wait_undrawn,
        "Difference": text(plain, error), "With retired": text(whole, whole_error),
        "plain": 100 * plain, "plain, half": 195.9964 * error if error > 1e-9 else None,
        "solved": 100 * whole, "solved, half": 195.9964 * whole_error if whole_error > 1e-9 else None,
    }  # fmt: skip


def weight_table(run: Recorded) -> pd.DataFrame:
    """Return W of candidates by age and entropy: whole-trajectory weights from mean log-probs and lengths."""
    scored = run.selections.merge(
        run.fresh[["trajectory_id", "mean_log_prob"]], left_on="trajectory", right_on="trajectory_id"
    )
    scored["log_ratio"] = -scored["nll"] - scored["mean_log_prob"]
    scored["age"] = scored["step"] - scored["rollout_step"]
    replayed = scored[scored["is_chosen"]]
    groups = {"replayed": replayed, "candidates not replayed": scored[~scored["is_chosen"]]}
    for name, form in (("age", "{:.0f}"), ("entropy", "{:.3f}")):
        ends = np.unique(np.percentile(replayed[name], (25, 50, 75, 100), method="inverted_cdf"))
        for place, end in enumerate(ends):
            low = -np.inf if place == 0 else ends[place - 1]
            head = f"up to {form.format(end)}" if place == 0 else f"over {form.format(low)} to {form.format(end)}"
            groups[f"replayed, {name} {head}"] = replayed[(replayed[name] > low) & (replayed[name] <= end)]
    beta = run.spec["algorithm"]["shaping_beta"]
    rows = []
    for name, part in groups.items():
        whole = np.exp(part["log_ratio"] * part["num_tokens"])
        means = {"Token ratio": np.exp(part["log_ratio"]), "E[W]": whole, "E[f(W)]": whole / (whole + beta)}
        means["E[W²]"] = whole**2
        rows.append({
            "Trajectories": name, "Number": len(part),
            **{name: values.mean() for name, values in means.items()},
            **{f"{name} ± 95%": half_of_mean(values) for name, values in means.items()},
            "M": whole.max(), "Effective": 100 * whole.sum() ** 2 / (whole**2).sum() / len(part),
        })  # fmt: skip
    return pd.DataFrame(rows)
