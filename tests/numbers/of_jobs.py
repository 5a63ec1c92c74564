"""What the pages of evaluations and judges and Benchmarks should show."""

import json
import re

import numpy as np
import pandas as pd

from tests.numbers.checking import Columns, Expected, quoted
from tests.numbers.derived import Score, gain_ends
from tests.numbers.of_runs import attempts, files
from tests.numbers.of_thoughts import counts_of, votes_of
from tests.numbers.words import long, number, share


def scores_of(job):
    [event] = job.of_kind("benchmark")
    return {scheme: Score(right, event["samples_per_question"]) for scheme, right in event["num_correct"].items()}


def evaluation_page(job):
    [event] = job.of_kind("benchmark")
    schemes = sorted(scores := scores_of(job), reverse=True)
    num = len(schemes)
    table = pd.DataFrame({
        "Scored": schemes, "Measure": [f"Avg@{event['samples_per_question']}"] * num,
        "Score": [100 * scores[scheme].mean for scheme in schemes],
        "From": [100 * scores[scheme].low for scheme in schemes],
        "To": [100 * scores[scheme].high for scheme in schemes],
        "Questions": [scores[scheme].num_questions for scheme in schemes],
        "Mean tokens": [event["mean_tokens"]] * num, "Truncated": [100 * event["truncated_share"]] * num,
    })  # fmt: skip
    tables = {"Scores of the evaluation by benchmark and scheme": table} | attempts(job)
    return Expected({}, tables, {}, header(job))


def samples_page(job, beside=None, opened=None):
    """Return the questions of an evaluation's only benchmark with their grades; `opened` is the row with answers.

    Next to another evaluation they are those that the first one answers better.
    """
    sides = [answers_of(side) for side in (job, beside) if side is not None]
    frame, schemes = sides[0].copy(), list(job.of_kind("benchmark")[0]["num_correct"])
    for name, column in (("num", "Samples"), ("tokens", "tokens"), ("cut", "Truncated")):
        frame[column] = sum(side[name] for side in sides)
    frame["Tokens"] = frame["tokens"] / frame["Samples"]
    rates = [100 * side["right"] / side["num"] for side in sides]
    for name, rate in zip(("Correct",) if beside is None else ("A correct", "B correct"), rates, strict=True):
        frame[name] = rate
    if beside is not None:
        frame = frame[rates[0] > rates[1]]
        frame = frame.loc[(rates[1] - rates[0])[frame.index].sort_values(kind="stable").index]
    table = frame.rename(columns={"question": "Question", "gold": "Gold answer"})
    texts = [rf"{len(table)} questions?; click one for its answers", *_kept(rates, sides)]
    if opened is not None:
        row = frame.iloc[opened]
        texts += [rf"Question {row.name}", quoted(row["question"]), rf"Gold answer: {re.escape(row['gold'])}"]
        for side, rate in zip(sides, rates, strict=True):
            first, *_ = side.loc[row.name, "samples"]
            grades = zip(schemes, side.loc[row.name, "outcomes"][0], strict=True)
            said = ", ".join(f"{scheme} {grade}" for scheme, grade in grades)
            cut = ", truncated" if first["is_truncated"] else ""
            texts += [rf"{said} · {first['num_tokens']} tokens{cut}", quoted(first["text"])]
            texts.append(rf"(A: |B: )?ExGRPO: .*: {share(rate[row.name] / 100)} correct")
    return Expected({}, {"Questions of the benchmark with their grades": table}, {}, [*texts, *header(job)])


def _kept(rates, sides):
    """Return the filters of questions with how many each keeps."""
    first, last = rates[0], rates[-1]
    kept = {
        "All": first >= 0, "Truncated": sum(side["cut"] for side in sides) > 0, "Correct": first == 100,
        "Sometimes correct": (first > 0) & (first < 100), "Wrong": first == 0,
        "A correct, B wrong": first > last, "A wrong, B correct": first < last,
        "Both correct": (first == 100) & (last == 100), "Both wrong": (first == 0) & (last == 0),
    }  # fmt: skip
    return [rf"Questions: {name} \({int(are.sum())}\)" for name, are in kept.items()]


def answers_of(job):
    """Return a row a question by its id: samples, how many are correct by the paper's scheme, cut, and their tokens."""
    [path] = job.path.glob("evaluation/*.jsonl")
    rows = pd.DataFrame([json.loads(line) for line in path.read_text().splitlines()]).set_index("question_id")
    place = list(job.of_kind("benchmark")[0]["num_correct"]).index("paper")
    rows["num"] = rows["samples"].map(len)
    rows["right"] = rows["outcomes"].map(lambda grades: sum(grade[place] == "correct" for grade in grades))
    rows["cut"] = rows["samples"].map(lambda samples: sum(sample["is_truncated"] for sample in samples))
    rows["tokens"] = rows["samples"].map(lambda samples: sum(sample["num_tokens"] for sample in samples))
    return rows


def header(job):
    num = len(job.of_kind("benchmark")[0]["question_ids"])
    scored = rf"scores .*, step {job.spec['model']['step']}"
    return [rf"{num} of {num} questions · took {long(job.seconds)}", scored, *_identity(job), *files(job)]


def _identity(job):
    return [r"(evaluation|judging) ?·.*", job.run_id]


def judge_page(job):
    counts, votes = counts_of(job), votes_of(job)
    tiles = {
        name: (number(counts[name]), share(counts[name] / counts["Responses"]))
        for name in ("Valid", "Not valid", "Unjudged")
    }
    tiles["Tokens"] = number(counts["Tokens"]), f"{len(votes)} votes"
    reasons = pd.Series([vote["reason"] for vote in votes if vote["outcome"] == "unjudged"], dtype=str).value_counts()
    table = pd.DataFrame({"Why a vote gave no verdict": list(reasons.index), "Votes": reasons.tolist()})
    texts = [rf"{len(votes)} of {len(votes)} votes · took {long(job.seconds)}", *_identity(job), *files(job)]
    return Expected(tiles, {"Reasons of votes without a verdict": table}, {}, texts)


def comparison(first, second):
    [before], [after] = first.of_kind("benchmark"), second.of_kind("benchmark")
    num_samples = before["samples_per_question"]
    rates = [dict(zip(event["question_ids"], np.array(event["num_correct"]["paper"]) / num_samples, strict=True))
             for event in (before, after)]  # fmt: skip
    gaps = np.array([rates[1][question] - rates[0][question] for question in before["question_ids"]])
    mean, low, high, p_value = gain_ends(
        *(Score(event["num_correct"]["paper"], num_samples) for event in (before, after))
    )
    table = pd.DataFrame({
        "Benchmark": [before["benchmark"]], "Questions": [len(gaps)],
        "First": [100 * np.mean(list(rates[0].values()))], "Second": [100 * np.mean(list(rates[1].values()))],
        "Difference": [100 * gaps.mean()], "From": [100 * low], "To": [100 * high],
        "p": [NearText(p_value, 0.001)],
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
            "error_x.array": [100 * (high - mean)], "error_x.arrayminus": [100 * (mean - low)],
        }}
    }  # fmt: skip
    tables = {
        "Differences of the two models by benchmark": table,
        "Questions on which the two models differ": differing,
    }
    texts = [rf"{(gaps > 0).sum()} won, {(gaps < 0).sum()} lost; click one for both answers"]
    return Expected({}, tables, figures, texts)


class NearText:
    """A p-value in words, near the derived one."""

    def __init__(self, value, tolerance):
        self.value, self.tolerance = value, tolerance

    def fullmatch(self, text):
        return abs(float(text.lstrip("< ")) - self.value) <= self.tolerance
