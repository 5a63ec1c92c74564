"""What tables and bars of scores should show: printed rows by the files of studies, the others by evaluations."""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from exgrpo.jobs.actions import studies
from tests.numbers.derived import Score
from tests.numbers.words import NONE

FOLDER = Path(studies.__file__).parent
_MATHS = ("AIME24", "AIME25", "AMC", "MATH-500", "Minerva", "Olympiad")
_OTHERS = ("ARC-c", "GPQA*", "MMLU-Pro")
AVERAGES = {"ID Avg.": _MATHS, "OOD Avg.": _OTHERS}
COLUMNS = (*_MATHS, "ID Avg.", *_OTHERS, "OOD Avg.")
BACKBONES = (
    "Qwen2.5-Math 7B", "Qwen2.5-Math 1.5B", "Qwen2.5-7B Instruct", "Llama3.1-8B", "Llama3.1-8B Instruct",
)  # fmt: skip
VARIANTS = {"Base or Instruct": ("Qwen-Base", "Base", "Instruct"), "On-Policy": (), "ExGRPO": ()}
"""Rows of the paper by the name that bars of backbones have for them, where it is another one."""


@dataclass
class Line:
    """One line of scores in percent: what was scored, and its interval where it is measured."""

    name: str
    scores: dict[str, float]
    ends: dict[str, str] = field(default_factory=dict)


@cache
def study(name):
    return dict(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()))


def printed_lines(name, group=None):
    [table] = study(name)["tables"]
    return [
        Line(
            row["row"],
            {
                name: value
                for name, value in zip(table["columns"], row["values"], strict=True)
                if not isinstance(value, str)
            },
        )
        for row in table["rows"]
        if group is None or row.get("group", "") == group
    ]


def backbone_lines():
    """Return what the paper prints of base, on-policy and ExGRPO, backbone by backbone."""
    lines = []
    for title in BACKBONES:
        found = {line.name: line for line in printed_lines("model-extension", title)}
        if not found:
            rows = [*printed_lines("main-table", ""), *printed_lines("main-table", "Zero RLVR with ExGRPO")]
            found = {line.name: line for line in rows}
        for variant, names in VARIANTS.items():
            [line] = [found[name] for name in (variant, *names) if name in found]
            lines.append(Line(variant, line.scores))
    return lines


def measured_line(job, source):
    """Return the score of a checkpoint on the user's benchmark, by the paper's scheme."""
    [event] = job.of_kind("benchmark")
    score = Score(event["num_correct"]["paper"], event["samples_per_question"])
    model, benchmark = job.spec["model"], event["benchmark"]
    last = ", the last" if model["chosen_as"] == "last" else ""
    return Line(
        f"ExGRPO: {source.name}, step {model['step']}{last}",
        {benchmark: 100 * score.mean},
        {benchmark: f"{100 * score.low:.1f} to {100 * score.high:.1f}"},
    )


def table(lines, columns):
    """Return the cells as pages write them: the best of a column bold, the second best underlined.

    A star marks a printed average that is not the mean of its cells.
    """
    frame = pd.DataFrame({"Line": [line.name for line in lines]})
    for column in columns:
        texts = [f"{line.scores[column]:.1f}" if column in line.scores else NONE for line in lines]
        best = sorted({float(text) for text in texts if text != NONE}, reverse=True)[:2]
        cells = []
        for line, text in zip(lines, texts, strict=True):
            place = best.index(float(text)) if text != NONE and float(text) in best else None
            mark = {None: "{}", 0: "<b>{}</b>", 1: "<u>{}</u>"}[place].format(text)
            star = "*" if _is_off(line, column) else ""
            ends = f" {line.ends[column]}" if column in line.ends else ""
            cells.append(f"{mark}{star}{ends}")
        frame[column] = cells
    return frame


def _is_off(line, column):
    """Whether a printed average differs from the mean of its cells by more than half of its last digit."""
    parts = [line.scores[name] for name in AVERAGES.get(column, ()) if name in line.scores]
    return bool(parts) and abs(np.mean(parts) - line.scores[column]) > 0.05 + 1e-6


def bars():
    lines = backbone_lines()
    return {
        title: {
            variant: {
                "x": list(BACKBONES), "y": [line.scores[column] for line in lines if line.name == variant],
                "text": [f"{line.scores[column]:.1f}" for line in lines if line.name == variant],
            }
            for variant in VARIANTS
        }
        for title, column in (("In distribution", "ID Avg."), ("Out of distribution", "OOD Avg."))
    }  # fmt: skip


def benchmark_tables(newest_first, benchmark):
    """Return both tables of Benchmarks, of which the user's benchmark has the second."""
    name = "Scores by model and benchmark"
    return {
        f"{name}: {COLUMNS[0]}": table(printed_lines("main-table"), COLUMNS),
        f"{name}: {benchmark}": table(newest_first, [benchmark]),
    }
