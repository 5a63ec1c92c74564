"""The mistakes of a specification, one sentence each, that names the field and what was expected."""

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ValidationError

from exgrpo_core.errors import FieldError, Mistake, joined, shown

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

AnySpec = TypeVar("AnySpec", bound=BaseModel)

_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "invalid_key": "a text as the name",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "string_too_short": "{min_length} or more characters",
    "string_pattern_mismatch": "lowercase letters, digits, dots and hyphens, with a letter or digit first",
    "too_short": "{min_length} or more entries",
    "path_type": "a path",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping of fields",
    "model_type": "a mapping of fields",
    "model_attributes_type": "a mapping of fields",
    "dataclass_type": "a mapping of fields",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}
"""What a value should have been, by pydantic's name of the error."""


_LIKELY = 0.7
"""Similarity of two names, in [0, 1], above which one counts as a misspelling of the other."""


class SpecError(FieldError):
    """A specification that cannot be run; its mistakes name the field, what was expected and what to do."""


def checked(model: type[AnySpec], content: object, origin: str) -> AnySpec:
    """Return the specification that `content` from `origin` (a file or form) holds.

    Raises:
        SpecError: One sentence a mistake, naming the field and what was expected.
    """
    try:
        try:
            spec = model.model_validate(content)
            json.dumps(spec.model_dump(), ensure_ascii=False, default=str).encode()  # half of a character is refused
            if not (booleans := [item for item in _strict_errors(model, content) if _is_boolean_for_number(item)]):
                return spec
            mistakes = _explain_all(model, booleans)
        except ValidationError as error:
            mistakes = _find_all(model, content, error)
    except UnicodeEncodeError as error:
        wrong = error.object[error.start : error.end]
        raise SpecError(f"{origin}: holds {wrong!a}, which is half of a character; remove it.") from None
    raise SpecError(f"{origin}: {joined(mistakes)}", mistakes=mistakes)


def wrong_types(model: type[BaseModel], content: object) -> tuple[Mistake, ...]:
    """Return a mistake for each field that is missing or of another type, none for values that are out of range."""
    return _explain_all(model, (item for item in _strict_errors(model, content) if _is_wrong_type(item)))


def _strict_errors(model: type[BaseModel], content: object) -> "list[ErrorDetails]":
    """Return the errors of what the content holds, not of what it could be read as."""
    try:
        model.model_validate_json(json.dumps(content, default=str), strict=True)
    except ValidationError as error:
        return error.errors()
    return []


def _is_boolean_for_number(item: "ErrorDetails") -> bool:
    return isinstance(item["input"], bool) and item["type"] in {"int_type", "float_type"}


def _is_wrong_type(item: "ErrorDetails") -> bool:
    kind = item["type"]
    is_choice = kind in {"literal_error", "enum"} and not isinstance(item.get("input"), str)
    return (
        is_choice
        or kind in {"missing", "json_invalid", "finite_number"}
        or kind.endswith(("_type", "_parsing", "_from_float"))
    )


def _find_all(model: type[BaseModel], content: object, error: ValidationError) -> tuple[Mistake, ...]:
    """Return the mistakes that pydantic found, and those of rules over several fields, which it skips after any other.

    Rules of a section with a wrong field wait until that is fixed.
    """
    mistakes = _explain_all(model, error.errors())
    wrong = [tuple(map(str, item["loc"])) for item in error.errors()]
    if not isinstance(content, Mapping) or () in wrong:
        return mistakes
    try:
        model.model_validate(_without(content, wrong))
    except ValidationError as other:
        rules = _explain_all(model, (item for item in other.errors() if item["type"] == "value_error"))
        sections = {path[0] for path in wrong}
        return (*mistakes, *(rule for rule in rules if not sections & {name.split(".")[0] for name in rule.fields}))
    return mistakes


def _without(content: Mapping[str, Any], paths: list[tuple[str, ...]]) -> dict[str, Any]:
    """Return `content` without the fields at `paths`, which then have their defaults."""
    here = {path[0] for path in paths if len(path) == 1}
    kept = {name: value for name, value in content.items() if name not in here}
    for name in {path[0] for path in paths} - here:
        inside = [path[1:] for path in paths if path[0] == name]
        if isinstance(kept.get(name), Mapping):
            kept[name] = _without(kept[name], inside)
        else:
            kept.pop(name, None)
    return kept


def _explain_all(model: type[BaseModel], items: "Iterable[ErrorDetails]") -> tuple[Mistake, ...]:
    return tuple(mistake for item in items for mistake in _explain(model, item))


def _explain(model: type[BaseModel], item: "ErrorDetails") -> list[Mistake]:
    """Return the mistakes of an error of pydantic: those that a validator names, else one on the field itself."""
    place = tuple(map(str, item["loc"]))
    error = item.get("ctx", {}).get("error")
    named = error.mistakes if isinstance(error, FieldError) else ()
    if any(mistake.fields for mistake in named):
        return [Mistake(each.text, *(".".join((*place, field)) for field in each.fields)) for each in named]
    expected = _EXPECTED.get(item["type"])
    if expected is not None:
        text = f"expected {expected.format_map(item.get('ctx', {}))}, got {shown(item.get('input'))}"
    elif item["type"] in {"extra_forbidden", "unexpected_keyword_argument"}:
        text = f"there is no such field; {nearest_field([*_leaves(model)], '.'.join(place))}"
    elif item["type"] == "missing":
        text = "expected a value, got none"
    else:
        message = item["msg"].removeprefix("Value error, ")
        text = f"{message}, got {shown(item.get('input'))}" if place else message
    return [Mistake(text, *([".".join(place)] if place else []))]


def _leaves(model: type, prefix: str = "") -> Iterator[str]:
    """Yield the dotted paths of a model's fields, in its sections those of their fields."""
    hints = get_type_hints(model)
    for name in _fields(model):
        sections = [kind for kind in (hints[name], *get_args(hints[name])) if _fields(kind)]
        for section in sections:
            yield from _leaves(section, f"{prefix}{name}.")
        if not sections:
            yield prefix + name


def _fields(kind: object) -> Mapping[str, object]:
    found: Mapping[str, object] = getattr(kind, "__dataclass_fields__", {})
    return kind.model_fields if isinstance(kind, type) and issubclass(kind, BaseModel) else found


def nearest_field(fields: Sequence[str], key: str) -> str:
    """Return a hint at the field most similar to `key`; if none is similar, the nearest field of its section."""
    path = _most_like(key, fields)
    if _likeness(_last_name(key), _last_name(path)) >= _LIKELY:
        return f"did you mean {path}?"
    section = key.rpartition(".")[0]
    path = _most_like(key, [field for field in fields if field.rpartition(".")[0] == section] or fields)
    shows = ", and `exgrpo query presets --preset NAME --json` shows all fields" if "preset" in fields else ""
    return f"the nearest is {path}{shows}."


def _most_like(key: str, fields: Sequence[str]) -> str:
    name = _last_name(key)
    return max(fields, key=lambda field: _likeness(name, _last_name(field)) + _likeness(key, field))


def _last_name(path: str) -> str:
    return path.rpartition(".")[2]


def _likeness(left: str, right: str) -> float:
    return difflib.SequenceMatcher(None, left, right).ratio()
