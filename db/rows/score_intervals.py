"""The 95% intervals of Avg@n and other scores."""

_STANDARD_ERRORS = 1.96


def half_interval_95(standard_error: float) -> float:
    """Return half of the 95% interval of a mean: 1.96 standard errors, which are clustered over questions.

    The normal approximation; 1.96 is the 97.5% quantile of the standard normal distribution.

    For the few seeds of a study `jobs.studies.intervals` uses Student's t instead.
    """
    return _STANDARD_ERRORS * standard_error
