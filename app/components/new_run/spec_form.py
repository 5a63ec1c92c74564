"""The form of a new run, built from the fields of the specification, a section at a time; the last tab is its YAML."""

import re
from collections.abc import Mapping, Sequence

import streamlit as st

from exgrpo.app import address
from exgrpo.app.components.new_run import field_input, where
from exgrpo.app.components.new_run.field_shapes import (
    STRATEGIES,
    FieldShape,
    InputKind,
    fields,
    is_about,
    part_texts,
    section_of,
    sections,
)
from exgrpo.app.components.new_run.form_state import TABS_KEY, FormState, value_at
from exgrpo.app.components.new_run.where import FIELDS, Where
from exgrpo.app.components.widgets import notice
from exgrpo.app.components.widgets.spec_text import as_yaml
from exgrpo.app.formats import counted
from exgrpo.app.settings import runs_root
from exgrpo.jobs.actions.preflight.data_preview import keep_training_file
from exgrpo.jobs.specs.presets import load_plain_yaml
from exgrpo.jobs.specs.train import ORACLE_SOURCES, SpecError, TrainSpec
from exgrpo_core.errors import Mistake, UserError

TITLES = {
    "run": "Run",
    "model": "Model",
    "data": "Data",
    "algorithm": "Algorithm",
    "optim": "Optimizer",
    "validation": "Validation",
    "recording": "Recording",
    "verl": "verl engine",
    "yaml": "YAML",
}
_OF_MADE = {
    f"data.{name}" for name in ("min_operations", "max_operations", "modulus", "number_size", "code_reward_rate")
}
SUBHEADINGS = {
    "sft": "Fine-tuning",
    "model.lora": "Low-rank adapters",
    "algorithm.batch_size": "Batch and rollouts",
    "algorithm.experience_ratio": "Experience management",
    "algorithm.normalize_by_std": "Policy optimization",
    "reward_model": "Reward model",
    "verl.ray.allow_unauthenticated": "Ray",
}
_ADDRESS = "section"
_MARK = " :red[:material/error:]"
_TEXT_KEY, _WRITTEN, _TEXT_MISTAKE = "new-run-yaml", "new-run-yaml-written", "new-run-yaml-mistake"
_DATA, _FILE_KEY, _FILE_REFUSAL = "data.source", "new-run-file", "new-run-file-refusal"
_SHOWN_ONCE = "engine"
"""The question above the form decides it."""


def show_where(state: FormState, mistakes: Sequence[Mistake]) -> Where:
    """Show where the run is, with the fields that this needs."""
    with st.container(border=True, key="where"):
        chosen = where.show(state)
        for path in FIELDS[chosen]:
            _show_field(state, fields()[path], mistakes)
        for mistake in _about(mistakes, "engine"):
            notice.show("error", "Engine", mistake)
    return chosen


def show(state: FormState, chosen: Where, mistakes: Sequence[Mistake]) -> None:
    """Show the sections as tabs, marked where they hold a mistake, and the fields of the open one."""
    has_verl = chosen is not Where.MACHINE or state.value("verl") != TrainSpec().model_dump(mode="json")["verl"]
    names = [name for name in sections() if name != "verl" or has_verl]
    names.append("yaml")
    wrong = {section_of(path) for mistake in mistakes for path in mistake.fields if path not in FIELDS[chosen]}
    labels = {name: TITLES[name] + (_MARK if name in wrong else "") for name in names}
    wanted = st.query_params.get(_ADDRESS)
    opened = next((name for name in names if TITLES[name] == wanted), names[0])
    st.session_state[TABS_KEY] = labels[opened]
    words = st.text_input(
        "Search settings", key="new-run-search", placeholder="Search settings by name, symbol or what they do",
        icon=":material/search:", label_visibility="collapsed",
    ).lower().split()  # fmt: skip
    tabs = st.tabs(list(labels.values()), key=TABS_KEY, on_change=_open, args=(labels,))
    with tabs[names.index(opened)]:
        if opened == "yaml" and not words:
            _show_text(state)
            return
        others = (*FIELDS[chosen], _SHOWN_ONCE, "verl.ray.address")
        if state.value(_DATA) not in ORACLE_SOURCES:
            others += tuple(_OF_MADE - {path for mistake in mistakes for path in mistake.fields})
        shapes = [shape for name in (names[:-1] if words else [opened]) for shape in sections()[name]]
        found = [shape for shape in shapes if shape.path not in others and _has_all(state, shape, words)]
        if words:
            st.caption(f"{counted(len(found), 'setting')} in all sections. Clear the search for one section.")
        for shape in found:
            _show_section_field(state, shape, mistakes)


def _has_all(state: FormState, shape: FieldShape, words: Sequence[str]) -> bool:
    of_part = part_texts(shape.path, str(state.value(shape.path))) if words and shape.path in STRATEGIES else ()
    text = " ".join((shape.found_by, shape.explanation, *of_part)).lower()
    return all(word in text for word in words)


def section_to_fix(state: FormState, mistake: Mistake) -> str | None:
    """Return the title of the section where a mistake can be fixed, None where no section holds its fields."""
    above = FIELDS[where.where_of(state)]
    names = (section_of(path) for path in mistake.fields if path not in above)
    return next((TITLES[name] for name in names if name is not None), None)


def open_first(state: FormState, mistakes: Sequence[Mistake]) -> None:
    """Open the section of the first of these mistakes, unless the address names a section."""
    titles = filter(None, (section_to_fix(state, mistake) for mistake in mistakes))
    if _ADDRESS not in st.query_params and (title := next(titles, None)):
        open_section(title)


def open_section(title: str) -> None:
    """Open a section."""
    address.put({_ADDRESS: title})


def _open(labels: Mapping[str, str]) -> None:
    open_section(next(TITLES[name] for name, label in labels.items() if label == st.session_state[TABS_KEY]))


def _show_section_field(state: FormState, shape: FieldShape, mistakes: Sequence[Mistake]) -> None:
    if shape.path in SUBHEADINGS:
        st.subheader(SUBHEADINGS[shape.path], anchor=False)
    if not shape.part or state.value(shape.part) is not None:
        _show_field(state, shape, mistakes)
        if shape.path == _DATA:
            _offer_file(state)


def _offer_file(state: FormState) -> None:
    """Show the box for a file of training data: it is kept on the server, and its path there is the field's value."""
    st.file_uploader("File from your computer", key=_FILE_KEY, on_change=_take_file, args=(state,))
    if refusal := st.session_state.pop(_FILE_REFUSAL, ""):
        notice.show("error", "Not taken", refusal)


def _take_file(state: FormState) -> None:
    state.take_widgets()
    dropped = st.session_state[_FILE_KEY]
    if dropped is None:
        return
    try:
        answer_kind = state.value("data.answer_kind")
        state.exchange(_DATA, keep_training_file(runs_root(), dropped.name, dropped.getvalue(), answer_kind))
    except UserError as error:
        st.session_state[_FILE_REFUSAL] = str(error)


def _show_field(state: FormState, shape: FieldShape, mistakes: Sequence[Mistake]) -> None:
    value, start = state.value(shape.path), value_at(state.start, shape.path)
    if shape.kind is InputKind.SWITCH and shape.is_optional:
        value, start = value is not None, start is not None
    field_input.show(shape, value, start, state.key(shape.path), _about(mistakes, shape.path))


def _about(mistakes: Sequence[Mistake], path: str) -> list[str]:
    """Return what the mistakes say of a field, after the name of the entry where the field's value has entries."""
    shape = fields()[path]
    about = (mistake for mistake in mistakes if any(is_about(name, shape) for name in mistake.fields))
    entries = re.compile(rf"{re.escape(path)}\.(.+)")
    inside = ((mistake, [match[1] for name in mistake.fields if (match := entries.match(name))]) for mistake in about)
    return [f"{', '.join(names)}: {mistake.text}" if names else _capitalized(mistake.text) for mistake, names in inside]


def _capitalized(sentence: str) -> str:
    """Return the sentence with a capital letter first, unless it begins with a name such as vLLM."""
    return sentence[:1].upper() + sentence[1:] if re.match(r"[a-z]+(-[a-z]+)*([ ,:]|\.?$)", sentence) else sentence


def text_mistake() -> str:
    """Return why the text that users wrote cannot be read, nothing where it can."""
    return str(st.session_state.get(_TEXT_MISTAKE, ""))


def _show_text(state: FormState) -> None:
    """Show the whole specification as text; what is written there is the form's."""
    st.caption("The whole specification. Edit it here: the checks, the other tabs and the launch follow the text.")
    written = st.session_state.get(_WRITTEN, "")
    is_current = text_mistake() or _read_text(written) == state.content
    st.session_state[_TEXT_KEY] = written if is_current else as_yaml(state.content)
    st.text_area("YAML", height=720, key=_TEXT_KEY, on_change=_take_text, args=(state,), label_visibility="collapsed")


def _take_text(state: FormState) -> None:
    text = st.session_state[_TEXT_KEY]
    st.session_state[_WRITTEN] = text
    st.session_state.pop(_TEXT_MISTAKE, None)
    content = _read_text(text)
    if isinstance(content, dict):
        state.replace(content)
    else:
        st.session_state[_TEXT_MISTAKE] = content


def _read_text(text: str) -> dict[str, object] | str:
    try:
        content = load_plain_yaml(text, "YAML")
    except SpecError as error:
        return str(error)
    if not isinstance(content, dict):
        return "YAML: expected the fields of a specification, one per line, such as num_steps: 150."
    return content
