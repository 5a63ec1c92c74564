"""A specification as text: YAML, differences from another, and the shell command that starts it."""

import json
import re
import shlex
from collections.abc import Mapping

import pandas as pd
import streamlit as st
import yaml

from exgrpo.app.components.widgets import data_table, figures
from exgrpo.app.formats import escape_control_characters, literal
from exgrpo.db.rows.spec_differences import Difference, differences
from exgrpo.jobs.specs.presets import load_plain_yaml
from exgrpo.jobs.specs.train import SpecError

MAX_OPTIONS_IN_COMMAND = 12
_NAMES = {"sft": "Supervised fine-tuning", "data.num_held_out": "Number of held-out questions"}
_ABBREVIATIONS = {"kl": "KL", "gpu": "GPU", "gpus": "GPUs", "lora": "LoRA"}
"""Words of paths that names write in capitals."""


def as_yaml(content: Mapping[str, object]) -> str:
    """Return the specification as YAML that `exgrpo train --spec` reads."""
    return yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True)


def shell_command(start: str, changes: list[Difference]) -> str:
    """Return the command that starts the same run; of a new one with many changes, what reads the downloaded file."""
    if len(changes) > MAX_OPTIONS_IN_COMMAND and start.startswith("exgrpo train"):
        return "exgrpo train --spec run.yaml"
    parts = [start]
    parts += [f"--set {shlex.quote(f'{change.path}={option_text(change.after)}')}" for change in changes]
    return (" \\\n  " if len(parts) > 2 else " ").join(parts)


def setting_name(path: str) -> str:
    """Return the name of a setting by its path, as forms and headers show it; one that a loop recorded has its own."""
    last = path.rpartition(".")[2]
    if path.startswith("config."):
        return last
    words = (_ABBREVIATIONS.get(word, word) for word in re.sub("^num_", "number_of_", last).split("_"))
    text = _NAMES.get(path) or " ".join(words)
    return text[:1].upper() + text[1:]


def option_text(value: object) -> str:
    """Return a value as `--set` and addresses take it: as JSON, or text that both read as the same text."""
    return str(value) if isinstance(value, str) and _is_plain(value) else json.dumps(value, default=str)


def _is_plain(text: str) -> bool:
    """Whether YAML and JSON read the text as itself."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        pass
    else:
        return False
    try:
        return bool(load_plain_yaml(text, "") == text)
    except SpecError:
        return False


def show_download(content: Mapping[str, object]) -> None:
    """Show the button that downloads the specification as YAML."""
    st.download_button(
        "Download run.yaml", as_yaml(content), file_name="run.yaml", mime="application/yaml", key="spec-download",
        icon=":material/download:", on_click="ignore",
    )  # fmt: skip


def show_changes(spec: Mapping[str, object], base: Mapping[str, object], base_name: str) -> None:
    """Show the fields that differ from a preset's, or from those of the run that this one continues or copies."""
    changes = differences(base, spec)
    st.subheader(f"Differences from {literal(base_name)}", anchor=False)
    if changes:
        alt = escape_control_characters(f"Fields that differ from {base_name}")
        rows = [
            (change.path, *(escape_control_characters(option_text(value)) for value in (change.before, change.after)))
            for change in changes
        ]
        table = pd.DataFrame(rows, columns=["Field", "Before", "This run"])
        data_table.show(table, figures.file_name(f"differences from {base_name}"), alt)
    else:
        st.caption("None: the run uses it unchanged.")
