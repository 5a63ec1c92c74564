"""What Run, Reasoning should show, by the verdicts of the task's oracle."""

import operator
import re
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import mannwhitneyu

from tests.numbers.checking import Columns, Expected, quoted
from tests.numbers.derived import half_of_mean, wilson
from tests.numbers.words import nats, share

LEVELS = ("easy", "medium", "hard")
PRINTED = {
    "easy": (0.09, 0.15, 73.4, 61.9, -11.5), "medium": (0.07, 0.14, 64.7, 54.5, -10.2),
    "hard": (0.10, 0.16, 56.1, 47.4, -8.7),
}  # fmt: skip
"""The paper's table of code: entropy and percent of valid chains, without and with code, and the difference."""


def correct_answers(run):
    """Return the correct rollouts with their perplexity, and the difficulty of their questions where they differ."""
    rows = run.fresh[run.fresh["is_correct"]].copy()
    rows["perplexity"] = np.exp(-rows["mean_log_prob"].astype(float))
    rows["level"] = np.select(
        [rows["rate"] == 1.0, rows["rate"] > 0.75, rows["rate"] > 0.25], ["solved", "easy", "medium"], "hard"
    )
    return rows


def _parts(rows):
    return {level: rows[rows["level"] == level] for level in LEVELS} | {"all": rows}


def entropy_page(root, run):
    rows = correct_answers(run)
    lines = pd.DataFrame([_validity(name, part) for name, part in _parts(rows).items()])
    drawn = lines[(lines["Valid"] > 0) | (lines["Not valid"] > 0)]
    valid, invalid = rows[rows["is_valid"].eq(True)], rows[rows["is_valid"].eq(False)]
    levels = {level: valid[valid["level"] == level] for level in LEVELS}
    figures: dict[str, dict[str, Columns]] = {
        "Entropy by validity": _densities({"valid": valid, "not valid": invalid}, "mean_entropy"),
        "Perplexity by validity": _densities({"valid": valid, "not valid": invalid}, "perplexity"),
        "Entropy of valid chains": _densities(levels, "mean_entropy"),
    }  # fmt: skip
    for name in ("Entropy", "Perplexity"):
        figures[f"Mean {name.lower()}"] = {
            kind: {
                "x": drawn["Questions"].tolist(),
                "y": drawn[f"{name} mean, {kind}"].tolist(),
                "error_y.array": drawn[f"{name} half, {kind}"].tolist(),
            }
            for kind in ("valid", "not valid")
        }
    tables = {
        "Entropy and perplexity of valid and invalid chains with the AUC of each, by difficulty": lines,
        "Correct answers with the verdicts of judge, oracle and users": _verdicts(rows),
        "Runs of judges with state, progress, votes, requests and tokens": judge_jobs(root, run),
        "Judges and prompt versions with the number of jobs, responses and tokens": judge_totals(root),
    }
    low, high = wilson(len(valid) / (num := len(valid) + len(invalid)), num)
    tiles = {
        "Correct answers": (f"{len(rows):,}", "fresh rollouts"), "Judged": (f"{num:,}", share(num / len(rows))),
        "Valid chains": (share(len(valid) / num), f"{100 * low:.1f} to {100 * high:.1f}%"),
    }  # fmt: skip
    counts = {"All": len(rows), "Judged": num, "Unjudged": len(rows) - num, "Disputed": 0}
    return Expected(tiles, tables, figures, [rf"Which: {name} \({count:,}\)" for name, count in counts.items()])


def _validity(name, part):
    valid, invalid = part[part["is_valid"].eq(True)], part[part["is_valid"].eq(False)]
    row: dict[str, object] = {"Questions": name, "Valid": len(valid), "Not valid": len(invalid)}
    for title, column in (("Entropy", "mean_entropy"), ("Perplexity", "perplexity")):
        for kind, values in (("valid", valid[column]), ("not valid", invalid[column])):
            row[f"{title} mean, {kind}"], row[f"{title} half, {kind}"] = values.mean(), half_of_mean(values)
            row[f"{title}, {kind}"] = MeanText(values) if len(values) else ""
        row[f"{title} AUC"] = None
        if len(valid) and len(invalid):
            area = mannwhitneyu(invalid[column], valid[column]).statistic / len(valid) / len(invalid)
            row |= {f"{title} AUC": area, f"{title.lower()} area": area}
    return row


class MeanText:
    """A mean in words with half of its interval, the latter of two values or more."""

    def __init__(self, values):
        self.parts = [part for part in (values.mean(), half_of_mean(values)) if part is not None]

    def fullmatch(self, text):
        parts = [float(part) for part in text.split(" ± ")]
        return len(parts) == len(self.parts) and np.allclose(parts, self.parts, rtol=2e-4, atol=6e-5)


def _densities(parts, column):
    """Return the shares of values in forty bins up to the largest 98th percentile, by the width of a bin."""
    samples = {name: part[column].to_numpy(float) for name, part in parts.items()}
    filled = [sample for sample in samples.values() if len(sample)]
    ends = [(min(sample), np.percentile(sample, 98)) for sample in filled] or [(0, 0)]
    edges = np.linspace(min(low for low, _ in ends), max(high for _, high in ends), 41)
    middles = (edges[1:] + edges[:-1]) / 2
    return {
        f"{name} ({len(sample)})": {"x": middles, "y": _shares(sample, edges) / np.diff(edges)}
        for name, sample in samples.items()
        if len(sample)
    }


def _shares(sample, edges):
    places = np.clip(np.searchsorted(edges, sample, side="right"), 0, len(edges))
    places[sample == edges[-1]] = len(edges) - 1
    return np.array([(places == place).sum() for place in range(1, len(edges))]) / len(sample)


def _verdicts(rows):
    newest = rows.sort_values("trajectory_id", ascending=False).head(50)
    names = {"Id": "trajectory_id", "Step": "step", "Question": "question_index", "Entropy": "mean_entropy"}
    return pd.DataFrame({name: newest[column].tolist() for name, column in names.items()})


def votes_of(job):
    return [vote for event in job.of_kind("votes") for vote in event["votes"]]


def judge_jobs(root, run):
    jobs = [job for job in root.newest_first if job.spec.get("judged", {}).get("run_id") == run.run_id]
    rows = []
    for job in jobs:
        votes, [plan] = votes_of(job), job.of_kind("judging")
        rows.append({
            "Job": job.run_id.rsplit("-", 1)[-1], "Progress": 1.0, "Votes": f"{len(votes)} of {plan['num_votes']}",
            "Unjudged": sum(vote["outcome"] == "unjudged" for vote in votes),
            "Requests": str(sum(vote["num_requests"] for vote in votes)),
            "Tokens": str(sum(vote["num_tokens"] for vote in votes)),
            "Created": re.compile(r"\d+ (s|min|h) ago|just now"),
        })  # fmt: skip
    return pd.DataFrame(rows)


def judge_totals(root):
    jobs = [job for job in root.newest_first if votes_of(job)]
    return pd.DataFrame([{"Judge": votes_of(job)[0]["judge"], "Jobs": 1} | counts_of(job) for job in jobs])


def counts_of(job):
    """Return the counts of responses by their verdict."""
    votes = pd.DataFrame(votes_of(job))
    outcomes = votes["outcome"].value_counts()
    return {
        "Responses": votes["item_id"].nunique(), "Valid": int(outcomes.get("valid", 0)),
        "Not valid": int(outcomes.get("invalid", 0)), "Unjudged": int(outcomes.get("unjudged", 0)),
        "Tokens": int(votes["num_tokens"].sum()),
    }  # fmt: skip


def snowball_page(run):
    rows = correct_answers(run)
    parts = {has_code: rows[rows["has_code"].eq(has_code)] for has_code in (False, True)}
    verdicts = {
        f"{name}, {verdict}": part[part["is_valid"].eq(is_valid)]
        for name, part in (("no code", parts[False]), ("code", parts[True]))
        for verdict, is_valid in (("valid", True), ("not valid", False))
    }
    lines = []
    for level, part in _parts(rows).items():
        lines.append(_code_row(level, part[part["has_code"].eq(False)], part[part["has_code"].eq(True)]))
        if level in PRINTED:
            names = ("Entropy, no code", "Entropy, code", "CoT %, no code", "CoT %, code", "Difference")
            lines.append({"Questions": level} | dict(zip(names, PRINTED[level], strict=True)))
    figures = {
        "Entropy by code": _densities({"without code": parts[False], "with code": parts[True]}, "mean_entropy"),
        "Entropy by code and verdict": _densities(verdicts, "mean_entropy"),
        "With code": _spreading(run, "has_code", True), "Chains not valid": _spreading(run, "is_valid", False),
    }  # fmt: skip
    num = int(rows["is_valid"].notna().sum())
    alt = "Entropy and share of valid chains of thought without and with code, this run next to the paper"
    return Expected(
        {}, {alt: pd.DataFrame(lines)}, figures, [rf"{num} of {len(rows)} correct answers have a verdict; .*"]
    )


def _code_row(level, off, on):
    row: dict[str, object] = {"Questions": level}
    rates = []
    for name, part in (("no code", off), ("code", on)):
        judged = part["is_valid"].dropna()
        rate = float(judged.eq(True).mean()) if len(judged) else np.nan
        rates.append(rate)
        row |= {
            f"Entropy, {name}": part["mean_entropy"].mean(),
            f"± 95%, {name}": half_of_mean(part["mean_entropy"].astype(float)),
            f"CoT %, {name}": 100 * rate,
            f"Answers, {name}": len(part),
        }
        row[f"Interval, {name}"] = None
        if len(judged):
            low, high = wilson(rate, len(judged))
            row[f"Interval, {name}"] = f"{100 * low:.1f} to {100 * high:.1f} of {len(judged):,}"
    return row | {"Difference": 100 * (rates[1] - rates[0])}


def _spreading(run, column, wanted):
    """Return the share of rollouts, successes, stored and replayed trajectories that have a property, by step."""
    known = run.fresh[run.fresh[column].notna()].set_index("trajectory_id")
    has = known[column].eq(wanted)
    lines: dict[str, Columns] = {}
    for name, part in (("rollouts", known), ("successes", known[known["is_correct"]])):
        means = has.loc[part.index].groupby(part["step"]).mean()
        lines[name] = {"x": means.index.tolist(), "y": means.tolist()}
    stored = {
        step: [item for item in run.stored(step)["trajectory"] if item in has.index] for step in run.metrics.index
    }
    lines["buffer"] = {
        "x": (x := [step for step, ids in stored.items() if ids]),
        "y": [has.loc[stored[step]].mean() for step in x],
    }
    replayed = run.replayed[run.replayed["trajectory_id"].isin(has.index)]
    means = has.loc[replayed["trajectory_id"]].groupby(replayed["step"].to_numpy()).mean()
    lines["replays"] = {"x": means.index.tolist(), "y": means.tolist()}
    return lines


def cases_of(run):
    """Return a pair of correct answers a question, of low and of high entropy, the best first.

    Of the ends of each step, and the valid chain of lowest entropy against the invalid one of highest: a valid
    next to an invalid one is best, then code in that of high entropy alone, then a wide gap.
    """
    rows, pairs = correct_answers(run).sort_values(["mean_entropy", "trajectory_id"]), []
    for _, part in rows.groupby(["question_index", "step"]):
        if len(part) > 1:
            pairs.append((part.iloc[0], part.iloc[-1]))
    for _, part in rows.groupby("question_index"):
        valid, invalid = part[part["is_valid"].eq(True)], part[part["is_valid"].eq(False)]
        if len(valid) and len(invalid) and valid.iloc[0]["mean_entropy"] < invalid.iloc[-1]["mean_entropy"]:
            pairs.append((valid.iloc[0], invalid.iloc[-1]))
    best: dict[int, tuple[Any, Any]] = {}
    for low, high in sorted(pairs, key=_rank):
        best.setdefault(low["question_index"], (low, high))
    return list(best.values())


def _rank(pair):
    low, high = pair
    is_telling = low["is_valid"] is True and high["is_valid"] is False
    has_code = bool(high["has_code"]) and not low["has_code"]
    return not is_telling, not has_code, low["mean_entropy"] - high["mean_entropy"], low["trajectory_id"]


def cases_page(run, cases):
    texts: list[Any] = [rf"{len(cases)} cases? of 1 run", rf"Set: .* \({len(cases)}\)"]
    for low, high in cases:
        steps = f"step {low['step']}"
        if low["step"] != high["step"]:
            steps = f"steps {low['step']} \\(low\\) and {high['step']} \\(high\\)"
        texts.append(rf"\*\*Question {low['question_index']}\*\*, {steps}")
        question = run.questions.loc[low["question_index"]]
        texts += [partial(operator.contains, str(question["prompt_text"])), quoted(str(question["answer"]))]
        for end, row in (("Low", low), ("High", high)):
            texts += [rf"\*\*{end} entropy\*\* &nbsp; {nats(row['mean_entropy'])} nats", quoted(row["text"])]
    return Expected({}, {}, {}, texts)


RULES = {"parser": r"(?m)^```python", "R1": r"```python", "R7": r"\bprint\("}
"""The patterns of the rules that recorded answers fit, of 17 and the parser."""


def rules_page(run):
    fits = pd.DataFrame({name: run.fresh["text"].str.contains(pattern) for name, pattern in RULES.items()})
    names = ["parser", *(f"R{number}" for number in range(1, 18))]
    counts = [int(fits[name].sum()) if name in fits else 0 for name in names]
    shares = [100 * num / len(run.fresh) for num in counts]
    table = pd.DataFrame({"Rule": names, "Trajectories": counts, "Share": shares})
    return Expected({}, {"The rules that detect code": table}, {}, [])
