"""What the list of trajectories and the page of one should show."""

import re
from html import unescape
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd

from tests.numbers import record
from tests.numbers.checking import Expected
from tests.numbers.derived import half_of_mean, wilson
from tests.numbers.words import NONE, nats, number

LIST = "Table of trajectories: step, question, verdict, length, entropy, replays and the start of the text"
QUESTIONS = "Table of questions: steps, rollouts, correct ones, replays and prompt"
MOST = 50
FAILURES = ("wrong", "unparsed", "timeout", "crash")
FILTERS = {
    "Outcome": ("is_correct", {"correct": True, "not correct": False}),
    "Replayed": ("is_replayed", {"replayed": True, "never replayed": False}),
    "Code": ("has_code", {"with code": True, "without code": False}),
    "Chain of thought": ("is_valid", {"valid": True, "not valid": False}),
}
"""Column and values of the options of each filter."""


def list_page(run, fitting=None):
    """Return the newest trajectories, of all or of those that fit."""
    of_run = run.fresh if fitting is None else run.fresh[fitting]
    rows = of_run.sort_values("trajectory_id", ascending=False).head(MOST)
    times = run.replayed["trajectory_id"].value_counts()
    names = {
        "Id": "trajectory_id", "Step": "step", "Question": "question_index", "Tokens": "num_tokens",
        "Entropy": "mean_entropy",
        "Reward": "reward",
    }  # fmt: skip
    table = pd.DataFrame({name: rows[column].tolist() for name, column in names.items()})
    table["Replays"] = [int(times.get(item, 0)) for item in rows["trajectory_id"]]
    number = f"{len(of_run):,}"
    said = [rf"{len(rows)} of {number} trajectories, newest first", rf"{number} trajectories with whole texts"]
    said.append(rf"Marked trajectories: {record.MARK} \(1\)")
    return Expected({}, {LIST: table}, {}, said)


def filters_page(run, label="", option=""):
    """Return the trajectories that an option of a filter keeps, and how many each option would keep."""
    rows = run.fresh.assign(is_replayed=run.fresh["trajectory_id"].isin(run.replayed["trajectory_id"]))
    fits = {
        (name, word): rows[column].eq(value)
        for name, (column, words) in FILTERS.items()
        for word, value in words.items()
    } | {("Outcome", verdict): rows["verdict"].eq(verdict) for verdict in FAILURES}
    kept = fits.get((label, option), rows["step"] > 0)
    expected = list_page(run, kept)
    for (name, word), fitting in fits.items():
        count = int(fitting.sum() if name == label else (fitting & kept).sum())
        expected.texts.append(re.escape(f"{name}: {word} ({count:,})"))
    return expected


def questions_page(run, is_unsolved=False):
    """Return the questions with all of their rollouts, most replayed first, or only those never solved."""
    times, last = (run.replayed.groupby("question_index")["step"].agg(name) for name in ("size", "max"))
    asked = run.fresh.groupby("question_index")
    table = pd.DataFrame({
        "Steps": asked["step"].nunique(), "Rollouts": asked.size(), "Correct": asked["is_correct"].sum(),
    }).assign(Replays=times, **{"Last replayed": last}).reset_index(names="Question")  # fmt: skip
    table["Replays"] = table["Replays"].fillna(0).astype(int)
    prompts = [" ".join(run.questions.loc[index, "prompt_text"].split()) for index in table["Question"]]
    table["Prompt"] = [prompt if len(prompt) <= 160 else f"{prompt[:160]}…" for prompt in prompts]
    table = table[table["Correct"] == 0] if is_unsolved else table
    rows = table.sort_values(["Replays", "Question"], ascending=[False, True]).head(MOST)
    said = rf"{len(rows)} of {len(table):,} questions?, most replayed first"
    texts = [said, rf"Marked trajectories: {record.MARK} \(1\)"]
    return Expected({}, {QUESTIONS: rows.dropna(axis="columns", how="all")}, {}, texts)


def marked_page(run):
    row = run.fresh.set_index("trajectory_id").loc[record.MARKED]
    marked = pd.DataFrame({
        "Trajectory": [record.MARKED], "Step": [row["step"]], "Reward": [row["reward"]],
        "Entropy": [round(float(row["mean_entropy"]), 4)], "Tokens": [row["num_tokens"]],
        "Prompt": [run.questions.loc[row["question_index"], "prompt_text"]],
    })  # fmt: skip
    expected = list_page(run)
    expected.tables["Trajectories that have the mark"] = marked
    return expected


def detail_page(root, run, trajectory):
    [row] = run.fresh[run.fresh["trajectory_id"] == trajectory].itertuples()
    replays = run.replayed[run.replayed["trajectory_id"] == trajectory].sort_values("step")
    last = replays.iloc[-1]
    tiles = {
        "Verdict": (row.verdict, f"reward {number(row.reward)}"), "Length": (str(row.num_tokens), "tokens"),
        "Entropy": (nats(row.mean_entropy), f"when last replayed {nats(last['mean_entropy'])}"),
        "NLL": (nats(-row.mean_log_prob), f"when last replayed {nats(-last['mean_log_prob'])}"),
        "Advantage": (number(row.advantage), f"in step {row.step}"),
        "Replays": (str(len(replays)), f"last in step {last['step']}"),
    }  # fmt: skip
    expected = list_page(run)
    expected.tiles = tiles
    expected.tables |= {
        "What happened, step by step": _life(run, row), "Tokens and their values": _tokens(row),
        "Every step that tried the question": _tried(root, run, row.question_index)[0],
    }  # fmt: skip
    expected.figures = {
        "Entropy and bucket by step": _scored(run, row, replays),
        "Entropy by position": {"": {"y": [] if row.entropies is None else row.entropies}},
        "Correct rollouts of this question": _tried(root, run, row.question_index)[1],
    }
    scored = run.selections[run.selections["trajectory"] == trajectory]
    num_tries = len(expected.figures["Correct rollouts of this question"])
    entropies = np.asarray(row.entropies, float) if row.entropies is not None else np.zeros(1)
    group, beside = (
        rows[(rows["step"] == row.step) & (rows["question_index"] == row.question_index)]
        for rows in (run.fresh, run.replayed)
    )
    members = [*group.itertuples(), *beside.itertuples()]
    num_right = int(group["is_correct"].sum()) + len(beside)
    expected.texts += [
        rf"Trajectory {trajectory}", rf"Question {row.question_index} · generated in step {row.step}",
        r"Step \d+ of \d+ is .*, expected .*", r"The start is not \d+",
        *(rf"({re.escape(line.strip())}|The end) {fault}"
          for line in re.findall(r"[\d ./*+-]+ = [\d./]+", row.text) or [""] for fault in _FAULTS),
        rf"Generated in step {row.step}; stored in bucket \d+; candidate in {len(scored)} steps?, replayed in "
        rf"{len(replays)}; .*entropy {nats(row.mean_entropy)} at rollout, {nats(last['mean_entropy'])} at its last .*",
        r"\*\*Entropy and bucket by step\*\* .*",
        rf"\*\*Correct rollouts of this question\*\* .*in {num_tries} runs? that tried it]]",
        rf"The stronger the colour.*; mean {number(row.mean_entropy)}, largest {number(entropies.max())} \(nats\), "
        rf"{row.num_tokens} tokens",
        rf"{num_right} of {len(members)} correct\. Underlined: not in the open one, {trajectory}\.",
        *(rf"\*\*{member.trajectory_id}\*\*" for member in members),
        *(rf"{member.num_tokens} tokens · entropy {nats(member.mean_entropy)} nats · advantage "
          rf"{re.escape(number(member.advantage))}" for member in members),
        *(rf".*replayed, generated in step {step}.*" for step in beside["rollout_step"]),
        r"<div .*", re.escape(str(row.text)),
        *(re.escape(str(text).strip()) + r"\s*"
          for text in run.questions.loc[row.question_index, ["prompt_text", "answer"]]),
    ]  # fmt: skip
    return expected


def difference_page(root, run, trajectory):
    """Return what the page shows of a trajectory next to the next one of its group: the question folded, two texts."""
    expected = detail_page(root, run, trajectory)
    rows = run.fresh.set_index("trajectory_id")
    here = rows.loc[trajectory]
    group = rows[(rows["step"] == here["step"]) & (rows["question_index"] == here["question_index"])]
    others = [other for other in group.index if other != trajectory]
    other = next((item for item in others if item > trajectory), others[0])

    def is_beside(html):
        words = re.sub(r"<[^>]*>", "\0", html)
        parts = [part for part in unescape(words).split("\0") if part.strip()]
        [question] = run.questions.loc[[here["question_index"]], "prompt_text"]
        texts = [here["text"], rows.loc[other, "text"]]
        heads = [f"Trajectory {trajectory}, open", f"Trajectory {other}"]
        said = unescape(re.sub(r"<[^>]*>", "", html))
        if texts[0] == texts[1]:
            return parts[:3] == [*heads, "2 equal messages"] and texts[0] in said
        return (
            parts[:3] == [*heads, "1 equal message"]
            and question in said
            and all(text.strip() in said for text in texts)
        )

    expected.texts = [words for words in expected.texts if words != r"<div .*"] + [is_beside]
    return expected


# Of reasoning in English that is not valid.
_FAULTS = (
    "is false", "is true, but computes something else than the story asks for",
    "uses a number that is neither given nor computed before", "does not box what was computed",
)  # fmt: skip
_NUMBERS = ("Entropy", "NLL", "Mean ratio", "Largest ratio", "Reward", "Advantage", "Candidates")
_EVENTS = {
    "scored": "candidate, not chosen", "replayed": "replayed", "moved": "question moved",
    "inserted": "stored in the buffer", "duplicate": "same response again, not stored",
    "retired": "question retired", "reviewed": "retired question reviewed", "evicted": "left the buffer (limit)",
    "emptied": "question left the buffer (limit)",
}  # fmt: skip
"""What can happen to a trajectory or its question, in the order of the page within a step."""


def _life(run, row):
    """Return the events of a trajectory and its question, each scored candidate with its numbers.

    Equal events in a row are one with their count.
    """
    numbers = {
        "Entropy": row.mean_entropy, "NLL": -row.mean_log_prob, "Reward": row.reward, "Advantage": row.advantage,
    }  # fmt: skip
    lines = [_line(row.step, "generated", numbers)]
    for step in [step for step in run.metrics.index if step >= row.step]:
        lines += _of_step(run, row, step)
    counts = [(line, len([*same])) for line, same in groupby(lines)]
    for line, count in counts:
        line["Event"] += f" ({count} times)" if count > 1 else ""
    frame = pd.DataFrame([line for line, _ in counts])
    return frame.assign(Age=frame["Step"] - row.step)


def _line(step, event, numbers, bucket=NONE):
    shown = {name: number(numbers[name]) if name in numbers else NONE for name in _NUMBERS}
    return {"Step": step, "Event": event, "Bucket": bucket} | shown


def _of_step(run, row, step):
    scored = run.selections[(run.selections["step"] == step) & (run.selections["question"] == row.question_index)]
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in _EVENTS}
    for candidate in scored[scored["trajectory"] == row.trajectory_id].itertuples():
        numbers = {"Entropy": candidate.entropy, "NLL": candidate.nll, "Candidates": len(scored)}
        kind = "replayed" if candidate.is_chosen else "scored"
        if candidate.is_chosen:
            replays = run.replayed[run.replayed["step"] == step].set_index("trajectory_id")
            names = ("mean_ratio", "max_ratio", "reward", "advantage")
            numbers |= zip(_NUMBERS[2:6], replays.loc[row.trajectory_id, names], strict=True)
        found[kind].append(_line(step, _EVENTS[kind], numbers))
    changes = run.changes[(run.changes["step"] == step) & (run.changes["question"] == row.question_index)]
    for change in changes[changes["kind"] != "replayed"].itertuples():
        was, now = ("" if pd.isna(bucket) else str(int(bucket)) for bucket in (change.was, change.now))
        is_own = pd.isna(change.trajectory) or change.trajectory == row.trajectory_id
        if change.kind in {"moved", "retired"} or (change.kind == "evicted" and not now):
            now = f"{was or 'new'} → {now or ('retired' if change.kind == 'retired' else 'outside')}"
        kind = change.kind if is_own else "emptied"
        if is_own or now.endswith("outside"):
            found[kind].append(_line(step, _EVENTS[kind], {}, now or NONE))
    return [line for lines in found.values() for line in lines]


def _tokens(row):
    if row.token_ids is None:
        return pd.DataFrame()
    return pd.DataFrame({
        "Position": range(1, row.num_tokens + 1), "Token id": row.token_ids, "Entropy": row.entropies,
        "Log-prob": row.log_probs, "Text": [""] * row.num_tokens,
    })  # fmt: skip


def _scored(run, row, replays):
    scored = run.selections[(run.selections["trajectory"] == row.trajectory_id) & ~run.selections["is_chosen"]]
    changes = run.changes[(run.changes["question"] == row.question_index) & (run.changes["step"] >= row.step)]
    is_out = (changes["trajectory"] == row.trajectory_id) | changes["now"].isna()
    moves = changes[changes["kind"].isin(["moved", "retired"]) | ((changes["kind"] == "evicted") & is_out)]
    mine = run.changes[run.changes["trajectory"] == row.trajectory_id]
    stored = mine[(mine["kind"] == "inserted") & ~mine["step"].isin(moves["step"])]
    last = max([*moves["step"], *replays["step"], *scored["step"], *mine["step"]])
    known = pd.concat([stored, moves]).sort_values("step", kind="stable")
    places: list[tuple[int, int | None]] = []
    for step, now in zip(known["step"], known["now"], strict=True):
        if pd.isna(now) and places:
            places.append((step, places[-1][1]))
        places.append((step, None if pd.isna(now) else int(now)))
    places.append((last, places[-1][1]))
    return {
        "at rollout": {"x": [row.step], "y": [row.mean_entropy]},
        "candidate, not chosen": {"x": scored["step"].tolist(), "y": scored["entropy"].tolist()},
        "replayed": {"x": replays["step"].tolist(), "y": replays["mean_entropy"].tolist()},
        "bucket of the question": {"x": [step for step, _ in places], "y": [bucket for _, bucket in places]},
    }  # fmt: skip


def _tried(root, run, question):
    """Return every step of any run that tried the question, this run first, and its share of correct rollouts."""
    ids = run.questions["question_id"]
    lines, curves = [], {}
    for other in [run, *(item for item in root.newest_first if item.is_training and item is not run)]:
        of_other = other.questions.reset_index().set_index("question_id")["question_index"]
        if other.last == {} or ids[question] not in of_other.index:
            continue
        rows = other.fresh[other.fresh["question_index"] == of_other[ids[question]]].groupby("step")
        if not len(rows):
            continue
        curves[other.name] = {"x": list(rows.groups), "y": rows["is_correct"].mean().tolist()}
        lines += [
            {"Run": other.name, "Model": root.model_of(other), "Step": step,
             "Correct": f"{part['is_correct'].sum()} of {len(part)}",
             "Interval": _interval(part["is_correct"]),
             "Mean entropy": round(float(part["mean_entropy"].astype(float).mean()), 4),
             "Entropy ± 95%": _rounded(part["mean_entropy"], 4),
             "Mean tokens": round(float(part["num_tokens"].mean()), 1),
             "Tokens ± 95%": _rounded(part["num_tokens"], 1)}
            for step, part in rows
        ]  # fmt: skip
    return pd.DataFrame(lines), curves


def _rounded(values, num_digits):
    half = half_of_mean(values.astype(float))
    return None if half is None else round(half, num_digits)


def _interval(are_correct):
    low, high = wilson(are_correct.mean(), len(are_correct))
    return f"{100 * low:.0f} to {100 * high:.0f}%"
