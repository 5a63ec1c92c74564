"""What the pages of evaluations and judges and Benchmarks should show."""

import numpy as np
import pandas as pd

from tests.numbers.checking import Columns, Expected, Near
from tests.numbers.derived import Recorded, Score
from tests.numbers.of_thoughts import counts_of, votes_of
from tests.numbers.words import long, number, share


def scores_of(job: Recorded) -> dict[str, Score]:
    """Return an evaluation's score by each scheme."""
    [event] = job.of_kind("benchmark")
    return {scheme: Score(right, event["samples_per_question"]) for scheme, right in event["num_correct"].items()}


def evaluation_page(job: Recorded) -> Expected:
    """Return what the page of an evaluation shows of its results."""
    [event] = job.of_kind("benchmark")
    schemes = sorted(scores := scores_of(job), reverse=True)
    num = len(schemes)
    table = pd.DataFrame({
        "Scored": schemes, "Measure": [f"Avg@{event['samples_per_question']}"] * num,
        "Score": [100 * scores[scheme].mean for scheme in schemes],
        "± 95%": [100 * scores[scheme].half for scheme in schemes],
        "Questions": [scores[scheme].num_questions for scheme in schemes],
        "Mean tokens": [event["mean_tokens"]] * num, "Truncated": [100 * event["truncated_share"]] * num,
    })  # fmt: skip
    num_questions = len(event["question_ids"])
    texts = [rf"{num_questions} of {num_questions} questions · took {long(job.seconds)}", *_identity(job)]
    return Expected({}, {"Scores of the evaluation by benchmark and scheme": table}, {}, texts)


def _identity(job: Recorded) -> list[str]:
    return [r"(evaluation|judging) ?·.*", job.run_id]


def judge_page(job: Recorded) -> Expected:
    """Return what the page of a judge's job shows of its results."""
    counts, votes = counts_of(job), votes_of(job)
    tiles = {
        name: (number(counts[name]), share(counts[name] / counts["Responses"]))
        for name in ("Valid", "Not valid", "Unjudged")
    }
    tiles["Tokens"] = number(counts["Tokens"]), f"{len(votes)} votes"
    reasons = pd.Series([vote["reason"] for vote in votes if vote["outcome"] == "unjudged"], dtype=str).value_counts()
    table = pd.DataFrame({"Why a vote gave no verdict": list(reasons.index), "Votes": reasons.tolist()})
    texts = [rf"{len(votes)} of {len(votes)} votes · took {long(job.seconds)}", *_identity(job)]
    return Expected(tiles, {"Reasons of votes without a verdict": table}, {}, texts)


def comparison(first: Recorded, second: Recorded) -> Expected:
    """Return how Benchmarks compares two evaluations of the same questions."""
    [before], [after] = first.of_kind("benchmark"), second.of_kind("benchmark")
    num_samples = before["samples_per_question"]
    rates = [dict(zip(event["question_ids"], np.array(event["num_correct"]["paper"]) / num_samples, strict=True))
             for event in (before, after)]  # fmt: skip
    gaps = np.array([rates[1][question] - rates[0][question] for question in before["question_ids"]])
    draws = np.random.default_rng(5).choice(gaps, (20_000, len(gaps))).mean(axis=1)
    low, high = np.percentile(draws, (2.5, 97.5))
    beyond = 2 * min((draws <= 0).mean(), (draws >= 0).mean())
    ends = [Near(100 * end, 0.0, 1.5) for end in (low, high)]
    table = pd.DataFrame({
        "Benchmark": [before["benchmark"]], "Questions": [len(gaps)],
        "First": [100 * np.mean(list(rates[0].values()))], "Second": [100 * np.mean(list(rates[1].values()))],
        "Difference": [100 * gaps.mean()], "From": [ends[0]], "To": [ends[1]], "p": [NearText(beyond, 0.02)],
        "Won": [int((gaps > 0).sum())], "Lost": [int((gaps < 0).sum())],
    })  # fmt: skip
    items = [(question, rates[0][question], rates[1][question]) for question in before["question_ids"]]
    differing = pd.DataFrame(
        [{"Question": question, "First": 100 * was, "Second": 100 * now, "Difference": 100 * (now - was)}
         for question, was, now in items if was != now]
    )  # fmt: skip
    figures: dict[str, dict[str, Columns]] = {
        "Difference": {"": {
            "y": [before["benchmark"]], "x": [100 * gaps.mean()],
            "error_x.array": [Near(100 * (high - gaps.mean()), 0.0, 1.5)],
            "error_x.arrayminus": [Near(100 * (gaps.mean() - low), 0.0, 1.5)],
        }}
    }  # fmt: skip
    tables = {
        "Differences of the two models by benchmark": table,
        "Questions on which the two models differ": differing,
    }
    texts = [rf"{(gaps > 0).sum()} won, {(gaps < 0).sum()} lost; click one for both answers"]
    newest = [scores_of(job)["paper"] for job in (second, first)]
    cells = [rf"{100 * score.mean:.1f}.*{100 * score.half:.1f}" for score in newest]
    texts.append(rf'<div .*aria-label="Scores by model and benchmark".*>sums</th>.*{".*".join(cells)}.*')
    texts.append(rf'<div .*aria-label="Scores by model and benchmark".*>sums</th>.*{".*".join(cells[::-1])}.*')
    return Expected({}, tables, figures, texts)


class NearText:
    """A p-value in words, near the derived one."""

    def __init__(self, value: float, tolerance: float) -> None:
        self.value, self.tolerance = value, tolerance

    def fullmatch(self, text: str) -> bool:
        return abs(float(text.lstrip("< ")) - self.value) <= self.tolerance
