"""One field of a form: its name, symbol, explanation and mistake on the left, its widget on the right."""

import contextlib
import json
import sys
from collections.abc import Callable, Sequence

import streamlit as st

from exgrpo.app.components.new_run.field_shapes import FieldShape, InputKind, part_defaults, part_texts
from exgrpo.app.components.widgets.spec_text import option_text
from exgrpo.app.formats import literal, with_code
from exgrpo.jobs.specs.presets import load_plain_yaml
from exgrpo.jobs.specs.train import SpecError

NOT_SET = "not set"
RANGES: dict[str, dict[str, object] | None] = {
    "no mask": None,
    "easy [75%, 100%)": {"low": 0.75, "high": 1.0, "includes_low": True, "includes_high": False},
    "medium (25%, 75%]": {"low": 0.25, "high": 0.75, "includes_low": False, "includes_high": True},
    "hard (0%, 25%]": {"low": 0.0, "high": 0.25, "includes_low": False, "includes_high": True},
}
"""The ranges of masked GRPO that the paper names."""
AS_GIVEN = "as given"
LARGEST_WHOLE_NUMBER = 2**53 - 1
"""The largest whole number that a browser holds exactly."""


def show(shape: FieldShape, value: object, start: object, key: str, mistakes: Sequence[str]) -> None:
    """Show the field with its value; `value_of` reads from the session's state at `key` what users change it to.

    Each run of the page names the value, since the browser may have drawn nothing of the runs before.
    """
    with st.container(key=f"field-{key}"):
        left, right = st.columns([6, 5], gap="medium", vertical_alignment="center")
    with left, st.container(gap="xxsmall"):
        _label(shape, start, is_changed=value != start and (value, start) != ("", None))
        for mistake in mistakes:
            st.markdown(f":small[:red[:material/error: {with_code(mistake)}]]")
    with right:
        if shape.kind in (InputKind.WHOLE_NUMBER, InputKind.NUMBER):
            _number(shape, raw_of(shape, value), start, key)
        else:
            _WIDGETS[shape.kind](shape, raw_of(shape, value), key)


def raw_of(shape: FieldShape, value: object) -> object:
    """Return what a field's widget holds for a value; one that it cannot hold leaves it empty."""
    return _RAW[shape.kind](shape, value) if shape.kind in _RAW else "" if value is None else str(value)


def value_of(shape: FieldShape, raw: object, before: object) -> object:
    """Return the value, as JSON has it, that a field's widget holds; `before` is the field's value until now."""
    if raw == raw_of(shape, before):
        return before
    return _VALUES[shape.kind](shape, raw) if shape.kind in _VALUES else raw


def _number_of(shape: FieldShape, value: object) -> float | int | None:
    is_whole = shape.kind is InputKind.WHOLE_NUMBER
    largest = LARGEST_WHOLE_NUMBER if is_whole else sys.float_info.max
    if isinstance(value, bool) or not isinstance(value, int | float) or not -largest <= value <= largest:
        return None
    return int(value) if is_whole else float(value)


def _option_of(shape: FieldShape, value: object) -> str:
    if str(value) in shape.options:
        return str(value)
    return NOT_SET if shape.is_optional else shape.options[0]


def _lines_of(shape: FieldShape, value: object) -> str:
    if shape.kind is InputKind.MAPPING:
        items = value.items() if isinstance(value, dict) else ()
        texts = {name: json.dumps(item, ensure_ascii=False) if isinstance(item, dict) else item for name, item in items}
        return "\n".join(f"{name}={'' if text is None else text}" for name, text in texts.items())
    return (", " if shape.kind is InputKind.WORDS else "\n").join(_words_of(value))


def _words_of(value: object) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list | tuple) else []


def _number_from(_shape: FieldShape, raw: object) -> object:
    """Return the number that a text is, none for nothing; another text is left for the checks."""
    text = str(raw).strip()
    for read in (int, float):
        with contextlib.suppress(ValueError):
            return read(text)
    return text or None


def _words_from(shape: FieldShape, raw: object) -> list[str]:
    words = str(raw).split(",") if shape.kind is InputKind.WORDS else str(raw).splitlines()
    return [word.strip() for word in words if word.strip()]


def _mapping_from(_shape: FieldShape, raw: object) -> dict[str, object]:
    lines = (line.partition("=") for line in str(raw).splitlines() if line.strip())
    return {name.strip(): _item_from(text.strip()) for name, _, text in lines}


def _item_from(text: str) -> object:
    """Return the fields that a line of YAML or JSON has in braces, else the text."""
    if not text.startswith("{"):
        return text
    try:
        return load_plain_yaml(text, "")
    except SpecError:
        return text


def _label(shape: FieldShape, start: object, is_changed: bool) -> None:
    symbol = f" &nbsp; :gray[*{shape.symbol}*]" if shape.symbol else ""
    badge = " &nbsp; :primary-badge[changed]" if is_changed else ""
    st.markdown(f"**{shape.label}**{symbol}{badge}")
    before = f" Was {option_text(start)}." if is_changed and start not in ("", None, []) else ""
    if shape.explanation or before:
        st.caption(f"{shape.explanation}{literal(before)}")


def _number(shape: FieldShape, raw: object, start: object, key: str) -> None:
    is_whole = shape.kind is InputKind.WHOLE_NUMBER
    st.number_input(
        shape.label, value=raw if isinstance(raw, int | float) else None, step=1 if is_whole else _step(start),
        format="%d" if is_whole else "%.6g", placeholder="a number", key=key, label_visibility="collapsed",
    )  # fmt: skip


def _step(start: object) -> float:
    """Return a step of a tenth of the number's size, so that 0.0001 can be stepped as well as 64."""
    if not isinstance(start, int | float) or not start:
        return 0.01
    return float(f"{abs(start) / 10:.0e}")


def _switch(shape: FieldShape, raw: object, key: str) -> None:
    st.toggle(shape.label, value=bool(raw), key=key, label_visibility="collapsed")


def _text(shape: FieldShape, raw: object, key: str) -> None:
    placeholder = "separated by commas" if shape.kind is InputKind.WORDS else "none" if shape.is_optional else None
    st.text_input(shape.label, value=str(raw), placeholder=placeholder, key=key, label_visibility="collapsed")


def _choice(shape: FieldShape, raw: object, key: str) -> None:
    chosen, is_strategy = str(raw), shape.kind is InputKind.STRATEGY
    if shape.kind is InputKind.CORRECTNESS_RANGE:
        options = [*RANGES]
    else:
        options = [*([NOT_SET] if shape.is_optional else []), *shape.options]
    options += [chosen] if chosen not in options else []
    st.selectbox(
        shape.label, options, index=options.index(chosen), key=key, label_visibility="collapsed",
        format_func=str if is_strategy else lambda option: option.replace("_", " "), accept_new_options=is_strategy,
    )  # fmt: skip
    for text in part_texts(shape.path, chosen) if is_strategy else ():
        st.caption(with_code(text))


def _choices(shape: FieldShape, raw: object, key: str) -> None:
    # A row of pills would be cut where the column is narrow.
    st.multiselect(
        shape.label, list(shape.options), default=_words_of(raw), placeholder="none", key=key, select_all=False,
        label_visibility="collapsed",
    )  # fmt: skip


def _lines(shape: FieldShape, raw: object, key: str) -> None:
    placeholder = "NAME=VALUE, one per line" if shape.kind is InputKind.MAPPING else "one per line"
    st.text_area(shape.label, value=str(raw), placeholder=placeholder, height=68, key=key, label_visibility="collapsed")


_WIDGETS: dict[InputKind, Callable[[FieldShape, object, str], None]] = {
    InputKind.SWITCH: _switch,
    InputKind.OPTIONAL_NUMBER: _text,
    InputKind.TEXT: _text,
    InputKind.WORDS: _text,
    InputKind.CHOICE: _choice,
    InputKind.STRATEGY: _choice,
    InputKind.CORRECTNESS_RANGE: _choice,
    InputKind.CHOICES: _choices,
    InputKind.LINES: _lines,
    InputKind.MAPPING: _lines,
}
_RAW: dict[InputKind, Callable[[FieldShape, object], object]] = {
    InputKind.SWITCH: lambda _shape, value: value is not None and value is not False,
    InputKind.WHOLE_NUMBER: _number_of,
    InputKind.NUMBER: _number_of,
    InputKind.CHOICE: _option_of,
    InputKind.CHOICES: lambda shape, value: [word for word in _words_of(value) if word in shape.options],
    InputKind.WORDS: _lines_of,
    InputKind.LINES: _lines_of,
    InputKind.MAPPING: _lines_of,
    InputKind.CORRECTNESS_RANGE: lambda _, value: next((name for name, of in RANGES.items() if of == value), AS_GIVEN),
}
"""What a widget holds for a value, by the kind of field; others hold text."""
_VALUES: dict[InputKind, Callable[[FieldShape, object], object]] = {
    InputKind.SWITCH: lambda shape, raw: (part_defaults(shape.path) if raw else None) if shape.is_optional else raw,
    InputKind.OPTIONAL_NUMBER: _number_from,
    InputKind.CHOICE: lambda _, raw: None if raw == NOT_SET else int(str(raw)) if str(raw).isdigit() else raw,
    InputKind.WORDS: _words_from,
    InputKind.LINES: _words_from,
    InputKind.MAPPING: _mapping_from,
    InputKind.CORRECTNESS_RANGE: lambda _shape, raw: RANGES[str(raw)],
    InputKind.TEXT: lambda shape, raw: None if shape.is_optional and not raw else raw,
}
"""The value of what a widget holds; those of other kinds hold it already."""
