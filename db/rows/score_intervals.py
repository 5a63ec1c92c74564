"""The 95% intervals of Avg@n and other scores, and what those of differences cover."""

from collections.abc import Callable, Sequence

from db.rows.scores import ComparisonRow

_STANDARD_ERRORS = 1.96


def half_interval_95(standard_error: float) -> float:
    """Return half of the 95% interval of a mean: 1.96 standard errors, which are clustered over questions.

    The normal approximation; 1.96 is the 97.5% quantile of the standard normal distribution.

    For the few seeds of a study `jobs.studies.intervals` uses Student's t instead.
    """
    return _STANDARD_ERRORS * standard_error


def describe_intervals(rows: Sequence[ComparisonRow], name_of: Callable[[str], str] = str) -> str:
    """Return in words what the 95% intervals of a comparison cover, benchmark by benchmark where they differ."""
    names: dict[str, list[str]] = {}
    for row in rows:
        names.setdefault(_coverage(row), []).append(name_of(row.benchmark))
    texts = list(names) if len(names) == 1 else [f"{text} ({', '.join(names[text])})" for text in names]
    return f"95% intervals cover other questions and other samples, {'; '.join(texts)}"


def _coverage(row: ComparisonRow) -> str:
    if min(row.num_seeds) > 1:
        pairs = "paired by training seed" if row.is_paired else "not paired: both sides need the same seeds, each once"
        return f"and other training seeds ({row.num_seeds[0]} and {row.num_seeds[1]} were run, {pairs})"
    sides = [side for side, count in zip(("first", "second"), row.num_seeds, strict=True) if count == 1]
    return f"not another training run of the {' or the '.join(sides)}"
