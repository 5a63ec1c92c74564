"""The summary of a form: whether it can run, its command, its YAML, and the button that starts it."""

import streamlit as st

from app import commands
from app.commands import RunRefusedError, SpecError, TrainSpec
from app.components.new_run import draft_menu
from app.components.replay_buffer import bucket_weights
from app.components.runs import spec_diff
from app.components.widgets import notice
from app.components.widgets.spec_text import Difference, as_yaml, differences, shell_command
from app.formats import byte_size, escape_control_characters


def show(spec: TrainSpec | None, content: dict[str, object], *, is_ready: bool) -> TrainSpec | None:
    """Show the summary of a form, `spec` being None where a field is wrong; return it when it is to be launched."""
    preset, base = _base(spec) if spec is not None else (None, TrainSpec())
    changes = differences(base.model_dump(mode="json"), spec.model_dump(mode="json")) if spec is not None else []
    with st.container(border=True, key="spec-verdict"):
        if spec is not None:
            verdict = ":green[:material/check_circle:] **Ready to launch** &nbsp; " if is_ready else ""
            st.markdown(f"{verdict}:gray[{_count(len(changes), preset)}]")
            st.caption(estimate(spec))
            st.caption(resources(spec))
        is_launched = st.button(
            "Launch run",
            type="primary",
            icon=":material/rocket_launch:",
            width="stretch",
            disabled=not is_ready,
            key="launch",
        )
        draft_menu.show_save(content)
    if spec is None:
        return None
    if spec.algorithm.is_experiential:
        with st.container(border=True, key="bucket-weights-card"):
            algorithm = spec.algorithm
            bucket_weights.show(algorithm.rollouts_per_question, algorithm.bucket_center, algorithm.bucket_spread)
    with st.container(border=True, key="spec-diff"):
        spec_diff.show(spec, base, f"preset {preset}" if preset else "paper defaults")
    _as_text(spec, preset, changes)
    return spec if is_launched else None


def check(content: dict[str, object]) -> tuple[TrainSpec | None, bool]:
    """Return the specification, None where a field is wrong, and whether it can be launched; show why it cannot."""
    try:
        return commands.check(content), True
    except RunRefusedError as error:
        spec, sentences = error.spec, list(error.reasons)
    except SpecError as error:
        spec, sentences = None, str(error).removeprefix("form: ").split("; ")
    notice.show("error", "Not ready yet", "\n".join(sentences))
    return spec, False


def estimate(spec: TrainSpec) -> str:
    """Return in words how much the run will generate, or imitate."""
    algorithm = spec.algorithm
    if spec.sft is not None:
        return (
            f"{spec.num_steps:,} steps of {algorithm.batch_size:,} demonstrations each: at most "
            f"{spec.num_steps * algorithm.batch_size:,} shown, of up to {algorithm.max_response_tokens:,} tokens."
        )
    per_step = algorithm.batch_size * algorithm.rollouts_per_question
    return (
        f"{spec.num_steps:,} steps of {algorithm.batch_size:,} questions, "
        f"{algorithm.rollouts_per_question} rollouts each: "
        f"at most {spec.num_steps * per_step:,} rollouts of up to {algorithm.max_response_tokens:,} tokens."
    )


def resources(spec: TrainSpec) -> str:
    """Return the memory and disk that the run needs, in words, as far as they are known."""
    needs = commands.estimate_resources(spec)
    disk = f"Disk: about {byte_size(needs.recordings)} of recordings"
    if needs.checkpoints is None or needs.memory is None:
        return f"{disk}; checkpoints and memory depend on the model, whose size is not known on this machine."
    disk += f" and {byte_size(needs.checkpoints)} of checkpoints."
    if needs.num_gpus:
        noun = "GPU" if needs.num_gpus == 1 else f"of {needs.num_gpus} GPUs"
        return f"{disk} Memory: up to {byte_size(needs.memory)} on each {noun}."
    return f"{disk} Memory: {byte_size(needs.memory)} for weights, gradients and optimizer, more for activations."


def _base(spec: TrainSpec) -> tuple[str | None, TrainSpec]:
    """Return the preset that the specification started from with its name, or the paper's defaults."""
    if spec.preset is None or spec.preset not in commands.preset_names():
        return None, TrainSpec()
    return spec.preset, commands.load_preset(spec.preset)


def _as_text(spec: TrainSpec, preset: str | None, changes: list[Difference]) -> None:
    text = as_yaml(spec.model_dump(mode="json"))
    with st.container(border=True, key="spec-text"):
        st.markdown("**CLI command**")
        st.code(escape_control_characters(shell_command(preset, changes)), language="bash", wrap_lines=True)
        with st.expander("YAML"):
            st.code(escape_control_characters(text), language="yaml", height=360)
        st.download_button(
            "Download run.yaml",
            text,
            file_name="run.yaml",
            mime="application/yaml",
            icon=":material/download:",
            on_click="ignore",
            key="spec-download",
        )


def _count(num_changes: int, preset: str | None) -> str:
    origin = "the preset" if preset else "the paper's defaults"
    if num_changes == 0:
        return f"no changes from {origin}"
    return f"{num_changes} change{'s' if num_changes > 1 else ''} from {origin}"
