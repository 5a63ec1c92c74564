"""One field of a form: its name, symbol and explanation on the left, its widget on the right."""

from collections.abc import Callable

import streamlit as st

from app.components.new_run.field_shapes import FieldShape, InputKind
from app.components.widgets.spec_text import option_text
from app.formats import literal

NOT_SET = "not set"
RANGES: dict[str, dict[str, object] | None] = {
    "no mask": None,
    "easy [75 %, 100 %)": {"low": 0.75, "high": 1.0, "includes_low": True, "includes_high": False},
    "medium (25 %, 75 %]": {"low": 0.25, "high": 0.75, "includes_low": False, "includes_high": True},
    "hard (0 %, 25 %]": {"low": 0.0, "high": 0.25, "includes_low": False, "includes_high": True},
}
"""The ranges of masked GRPO that the paper names."""


def show(shape: FieldShape, start: object, key: str) -> object:
    """Show the field with `start` as its first value; return its value as JSON holds it."""
    with st.container(key=f"field-{key}"):
        left, right = st.columns([6, 5], gap="medium", vertical_alignment="center")
    with right:
        value = _INPUTS[shape.kind](shape, start, key)
    with left, st.container(gap="xxsmall"):
        _label(shape, start, is_changed=value != start)
    return value


def _label(shape: FieldShape, start: object, is_changed: bool) -> None:
    symbol = f" &nbsp; :gray[*{shape.symbol}*]" if shape.symbol else ""
    mark = " &nbsp; :primary-badge[changed]" if is_changed else ""
    st.markdown(f"**{shape.label}**{symbol}{mark}")
    before = f" Was {option_text(start)}." if is_changed and start not in ("", None, []) else ""
    if shape.explanation or before:
        st.caption(f"{shape.explanation}{literal(before)}")


def _number(shape: FieldShape, start: object, key: str) -> object:
    is_whole = shape.kind is InputKind.WHOLE_NUMBER
    number = None if start is None else (int(str(start)) if is_whole else float(str(start)))
    if shape.is_optional:
        # Given as `value`, a number would come back whenever the reader clears the field.
        st.session_state.setdefault(key, number)
    return st.number_input(
        shape.label,
        value=None if shape.is_optional else number,
        step=1 if is_whole else _step(number),
        format="%d" if is_whole else "%.6g",
        placeholder="none",
        key=key,
        label_visibility="collapsed",
    )


def _step(number: float | int | None) -> float:
    """Return a step of a tenth of the number's size, so that 0.0001 can be stepped as well as 64."""
    if not number:
        return 0.01
    return float(f"{abs(number) / 10:.0e}")


def _switch(shape: FieldShape, start: object, key: str) -> object:
    return st.toggle(shape.label, value=bool(start), key=key, label_visibility="collapsed")


def _text(shape: FieldShape, start: object, key: str) -> object:
    text = st.text_input(
        shape.label,
        value="" if start is None else str(start),
        placeholder="none" if shape.is_optional else None,
        key=key,
        label_visibility="collapsed",
    )
    return None if shape.is_optional and not text else text


def _choice(shape: FieldShape, start: object, key: str) -> object:
    options = [*([NOT_SET] if shape.is_optional else []), *shape.options]
    chosen = st.selectbox(
        shape.label,
        options,
        index=0 if start is None else options.index(str(start)),
        format_func=lambda option: option.replace("_", " "),
        key=key,
        label_visibility="collapsed",
    )
    if chosen == NOT_SET:
        return None
    return int(chosen) if isinstance(start, int) else chosen


def _choices(shape: FieldShape, start: object, key: str) -> object:
    # A row of pills would be cut where the column is narrow.
    chosen = st.multiselect(
        shape.label,
        list(shape.options),
        default=_words_of(start),
        placeholder="none",
        key=key,
        label_visibility="collapsed",
    )
    return list(chosen)


def _words(shape: FieldShape, start: object, key: str) -> object:
    text = st.text_input(
        shape.label,
        value=", ".join(_words_of(start)),
        placeholder="separated by commas",
        key=key,
        label_visibility="collapsed",
    )
    return [word.strip() for word in text.split(",") if word.strip()]


def _lines(shape: FieldShape, start: object, key: str) -> object:
    text = st.text_area(
        shape.label,
        value="\n".join(_words_of(start)),
        placeholder="one per line",
        height=68,
        key=key,
        label_visibility="collapsed",
    )
    return [line.strip() for line in text.splitlines() if line.strip()]


def _words_of(start: object) -> list[str]:
    return [str(word) for word in start] if isinstance(start, list | tuple) else []


def _range(shape: FieldShape, start: object, key: str) -> object:
    named = dict(RANGES)
    if start not in named.values():
        named["as given"] = start if isinstance(start, dict) else None
    chosen = st.selectbox(
        shape.label,
        list(named),
        index=list(named.values()).index(start if isinstance(start, dict) else None),
        key=key,
        label_visibility="collapsed",
    )
    return named[chosen]


_INPUTS: dict[InputKind, Callable[[FieldShape, object, str], object]] = {
    InputKind.SWITCH: _switch,
    InputKind.WHOLE_NUMBER: _number,
    InputKind.NUMBER: _number,
    InputKind.TEXT: _text,
    InputKind.CHOICE: _choice,
    InputKind.CHOICES: _choices,
    InputKind.WORDS: _words,
    InputKind.LINES: _lines,
    InputKind.CORRECTNESS_RANGE: _range,
}
