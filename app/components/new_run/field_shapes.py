"""The fields of a specification as a form needs them, read from its types and attribute docstrings."""

import ast
import dataclasses
import inspect
import re
import textwrap
import types
import typing
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from threading import Lock

from pydantic import BaseModel

from exgrpo.app.components.widgets.spec_text import setting_name
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.errors import InputError
from exgrpo_core.methods.loading import KINDS, describe, find_part, names_of, part_numbers

HIDDEN = frozenset({"kind", "preset"})
OPTIONAL_PARTS = {"sft": "run", "model.lora": "model", "reward_model": "algorithm"}
"""Parts of a specification that may be missing, with the section that shows them; a switch adds or removes them."""
ONE_A_LINE = frozenset({"verl.overrides"})
"""Lists whose items may contain commas."""
STRATEGIES = {f"algorithm.{setting}": setting for setting in KINDS}
"""Fields that name a part of a replay method: one of the workbench's, or any other name."""
_PARSING = Lock()
"""Held while source is parsed: Python 3.11 mixes up two threads in it ("AST constructor recursion depth mismatch")."""
GREEK = {"rho": "\u03c1", "mu": "\u03bc", "sigma": "\u03c3", "beta": "\u03b2", "epsilon": "\u03b5"}
_SYMBOL = re.compile(r"^(rho|mu|sigma|beta|epsilon|B|K|S|f\(w\))(?: of [^:.]*)?: ")
_NAMED_SYMBOL = re.compile(r"^(beta|epsilon) of ")


class InputKind(StrEnum):
    """Which widget a field gets."""

    SWITCH = "switch"
    WHOLE_NUMBER = "whole_number"
    NUMBER = "number"
    OPTIONAL_NUMBER = "optional_number"
    TEXT = "text"
    CHOICE = "choice"
    STRATEGY = "strategy"
    CHOICES = "choices"
    WORDS = "words"
    LINES = "lines"
    MAPPING = "mapping"
    CORRECTNESS_RANGE = "correctness_range"


_SIMPLE: dict[object, InputKind] = {
    bool: InputKind.SWITCH, int: InputKind.WHOLE_NUMBER, float: InputKind.NUMBER, dict: InputKind.MAPPING,
    str: InputKind.TEXT, Path: InputKind.TEXT,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FieldShape:
    """One field: its path, what it means, and what it may hold."""

    path: str
    label: str
    symbol: str
    explanation: str
    kind: InputKind
    options: tuple[str, ...]
    is_optional: bool
    part: str = ""
    """The optional part of the specification that the field is in."""

    @property
    def found_by(self) -> str:
        """What a search finds the field by: label, symbol, in letters too, and path."""
        letters = next((name for name, letter in GREEK.items() if letter == self.symbol), "")
        return " \N{MIDDLE DOT} ".join(filter(None, (self.label, f"{self.symbol} {letters}".strip(), self.path)))


@cache
def sections() -> dict[str, tuple[FieldShape, ...]]:
    """Return the fields by section; those of the run itself come first, under `run`."""
    shapes: dict[str, tuple[FieldShape, ...]] = {"run": ()}
    hints = typing.get_type_hints(TrainSpec)
    docs = attribute_docs(TrainSpec)
    for name in _field_names(TrainSpec):
        if name in HIDDEN or name in OPTIONAL_PARTS:
            continue
        if _is_section(hints[name]):
            shapes[name] = _section(hints[name], f"{name}.")
        else:
            shapes["run"] += (_shape(name, hints[name], docs.get(name, "")),)
    for path, section in OPTIONAL_PARTS.items():
        shapes[section] += _part(path)
    return shapes


@cache
def fields() -> dict[str, FieldShape]:
    """Return the fields by path."""
    return {shape.path: shape for shapes in sections().values() for shape in shapes}


@cache
def section_of(path: str) -> str | None:
    """Return the section that shows a field, or the field that a longer path leads into; None if none does."""
    for name, shapes in sections().items():
        if any(is_about(path, shape) for shape in shapes):
            return name
    return None


def is_about(path: str, shape: FieldShape) -> bool:
    """Return whether a path, as a mistake names it, is that of a field or leads into its value."""
    return path == shape.path or path.startswith(f"{shape.path}.")


def part_defaults(name: str) -> dict[str, object]:
    """Return the fields of an optional part as they are when it is added."""
    part, _ = _optional_part(name)
    assert issubclass(part, BaseModel)
    defaults = {key: "" if field.is_required() else field.get_default() for key, field in part.model_fields.items()}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in defaults.items()}


def attribute_docs(cls: type) -> dict[str, str]:
    """Return the docstring under each attribute of a class, on one line."""
    with _PARSING:
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    docs: dict[str, str] = {}
    target = None
    for node in getattr(body, "body", []):
        text = node.value.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else None
        if target is not None and isinstance(text, str):
            docs[target] = " ".join(text.split())
        target = node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else None
    return docs


def part_texts(path: str, name: str) -> list[str]:
    """Return what the part does that a field names, and for each number that only it knows its range and meaning."""
    setting = STRATEGIES[path]
    try:
        part = find_part(setting, name)
        numbers = part_numbers(part)
    except InputError:
        return []
    docs = _inherited_docs(part)
    texts = [describe(setting, name)]
    for key, (expected, default) in numbers.items():
        if key not in ExGRPOConfig.__dataclass_fields__:
            is_needed = default is dataclasses.MISSING
            usual = f"{default:g}" if isinstance(default, int | float) else str(default)
            end = "needed" if is_needed else f"{usual} if not given"
            texts.append(f"`{key}` is {expected or 'a number'}, {end}. {docs.get(key, '')}".rstrip())
    return [text for text in texts if text]


def _inherited_docs(cls: type) -> dict[str, str]:
    owners = filter(dataclasses.is_dataclass, reversed(cls.__mro__))
    return {key: text for owner in owners for key, text in attribute_docs(owner).items()}


def _part(path: str) -> tuple[FieldShape, ...]:
    part, doc = _optional_part(path)
    switch = FieldShape(path, setting_name(path), "", doc, InputKind.SWITCH, (), is_optional=True)
    return switch, *(dataclasses.replace(shape, part=path) for shape in _section(part, f"{path}."))


def _optional_part(path: str) -> tuple[type, str]:
    owner: object = TrainSpec
    *sections_above, name = path.split(".")
    for section in sections_above:
        owner = typing.get_type_hints(owner)[section]
    assert isinstance(owner, type)
    part, _ = _without_none(typing.get_type_hints(owner)[name])
    assert isinstance(part, type)
    return part, attribute_docs(owner)[name]


def _section(cls: type, prefix: str) -> tuple[FieldShape, ...]:
    hints, docs = typing.get_type_hints(cls), attribute_docs(cls)
    shapes: tuple[FieldShape, ...] = ()
    for name in _field_names(cls):
        path = prefix + name
        if isinstance(hints[name], type) and issubclass(hints[name], BaseModel):
            shapes += _section(hints[name], f"{path}.")
        elif path not in HIDDEN and path not in OPTIONAL_PARTS:
            shapes += (_shape(path, hints[name], docs.get(name, "")),)
    return shapes


def _field_names(cls: type) -> list[str]:
    if issubclass(cls, BaseModel):
        return list(cls.model_fields)
    assert dataclasses.is_dataclass(cls)
    return [field.name for field in dataclasses.fields(cls)]


def _is_section(annotation: object) -> bool:
    return isinstance(annotation, type) and (issubclass(annotation, BaseModel) or dataclasses.is_dataclass(annotation))


def _shape(path: str, annotation: object, doc: str) -> FieldShape:
    symbol, explanation = split_symbol(doc)
    annotation, is_optional = _without_none(annotation)
    kind, options = (InputKind.LINES, ()) if path in ONE_A_LINE else _kind(annotation)
    if path in STRATEGIES:
        kind, options = InputKind.STRATEGY, tuple(names_of(STRATEGIES[path]))
    if is_optional and kind in (InputKind.WHOLE_NUMBER, InputKind.NUMBER):
        kind = InputKind.OPTIONAL_NUMBER
    return FieldShape(path, setting_name(path), symbol, explanation, kind, options, is_optional)


def split_symbol(doc: str) -> tuple[str, str]:
    """Split an attribute docstring into the paper's symbol, if it names one, and the explanation."""
    match = _SYMBOL.match(doc)
    if match:
        explanation = doc[match.end() :]
        return GREEK.get(match[1], match[1]), explanation[:1].upper() + explanation[1:]
    named = _NAMED_SYMBOL.match(doc)
    return (GREEK[named[1]] if named else ""), doc


def _without_none(annotation: object) -> tuple[object, bool]:
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        parts = [part for part in typing.get_args(annotation) if part is not type(None)]
        if len(parts) == 1:
            return parts[0], True
    return annotation, False


def _kind(annotation: object) -> tuple[InputKind, tuple[str, ...]]:
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return InputKind.CHOICE, tuple(str(option) for option in arguments)
    if typing.get_origin(annotation) is tuple:
        options = typing.get_args(arguments[0]) if typing.get_origin(arguments[0]) is typing.Literal else ()
        return (InputKind.CHOICES, tuple(map(str, options))) if options else (InputKind.WORDS, ())
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return InputKind.CHOICE, tuple(member.value for member in annotation)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return InputKind.CORRECTNESS_RANGE, ()
    return _SIMPLE[typing.get_origin(annotation) or annotation], ()
