"""The short name of a run's method, from its specification: in Python and, for searching, in SQL."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, and_, case, func, literal

from db.rows.adopted_runs import ADOPTED_ENGINE, ADOPTED_TAG, ADOPTED_TOKEN_DATA, UNKNOWN, is_adopted
from db.rows.algorithm_of_spec import DEFAULT_EXPERIENCE_RATIO, experience_ratio
from db.rows.unreadable_specs import is_unreadable
from db.tables import models

JOB_NAMES = {"eval": "evaluation", "judge": "judging"}
"""The names of jobs other than training."""


def method_name(spec: Mapping[str, Any]) -> str:
    """Return the short name of a specification's algorithm, or the name of another job."""
    kind = str(spec.get("kind", "train"))
    if kind != "train":
        return JOB_NAMES.get(kind, kind)
    if is_adopted(spec) or is_unreadable(spec):
        return UNKNOWN
    algorithm = spec.get("algorithm", {})
    names = {
        "SFT": spec.get("sft") is not None,
        "masked GRPO": algorithm.get("mask_range") is not None,
        "ExGRPO": experience_ratio(spec) > 0.0,
        "LUFFY": algorithm.get("uses_external_experience", False),
        "GRPO": algorithm.get("normalize_by_std", False),
    }
    return next((name for name, applies in names.items() if applies), "Dr.GRPO")


def method_expression() -> ColumnElement[str]:
    """Return the SQL expression whose value is `method_name` of a run's specification."""
    spec = models.runs.c.spec
    kind = func.coalesce(spec["kind"].as_string(), "train")
    algorithm = spec["algorithm"]
    ratio = func.coalesce(algorithm["experience_ratio"].as_float(), DEFAULT_EXPERIENCE_RATIO)
    return case(
        *((kind == job, literal(name)) for job, name in JOB_NAMES.items()),
        (kind != "train", kind),
        (_is_adopted_expression(), literal(UNKNOWN)),
        (spec["is_unreadable"].as_string().is_not(None), literal(UNKNOWN)),
        (spec["sft"].as_string().is_not(None), literal("SFT")),
        (algorithm["mask_range"].as_string().is_not(None), literal("masked GRPO")),
        (ratio > 0.0, literal("ExGRPO")),
        (func.coalesce(algorithm["uses_external_experience"].as_boolean(), False), literal("LUFFY")),
        (func.coalesce(algorithm["normalize_by_std"].as_boolean(), False), literal("GRPO")),
        else_=literal("Dr.GRPO"),
    )


def _is_adopted_expression() -> ColumnElement[bool]:
    spec = models.runs.c.spec
    return and_(
        spec["engine"].as_string() == ADOPTED_ENGINE,
        func.coalesce(spec["tags"].as_string(), "").contains(f'"{ADOPTED_TAG}"'),
        spec["recording"]["token_data"].as_string() == ADOPTED_TOKEN_DATA,
    )
