"""The summary of a form: whether it can run, its command, its YAML, and the button that starts it."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from exgrpo.app.components.new_run import form_state, spec_form, where
from exgrpo.app.components.new_run.form_check import NO_ADDRESS, FormCheck
from exgrpo.app.components.new_run.form_state import FormState
from exgrpo.app.components.new_run.starting_point import StartingPoint
from exgrpo.app.components.replay_buffer import buffer_charts
from exgrpo.app.components.widgets import notice, spec_text
from exgrpo.app.components.widgets.spec_text import shell_command
from exgrpo.app.formats import byte_size, counted, duration, escape_control_characters, with_code
from exgrpo.db.rows.spec_differences import differences
from exgrpo.db.rows.spec_fields import bucket_meaning
from exgrpo.jobs.actions.preflight.looks import lacks_model
from exgrpo.jobs.actions.preflight.memory_estimate import ResourceEstimate
from exgrpo.jobs.actions.studies.running import estimate_step_seconds
from exgrpo.jobs.machine.hardware import type_of
from exgrpo.jobs.specs.train import TrainSpec, load_preset, preset_exists
from exgrpo_core.config import GAUSSIAN
from exgrpo_core.errors import Mistake


def show(check: FormCheck, state: FormState, start: StartingPoint) -> tuple[bool, DeltaGenerator]:
    """Show the summary of a form; return whether it is launched, and where a refusal is to be shown."""
    spec, preflight = check.spec, check.preflight
    base = _base(spec, start) if spec is not None else _Base("", "", {})
    changes = differences(base.content, spec.model_dump(mode="json")) if spec is not None else []
    with st.container(border=True, key="spec-verdict"):
        count = f"{counted(len(changes), 'change') if changes else 'no changes'} from {base.name}"
        _verdict(check, count if spec is not None else "", has_changes=state.is_changed)
        is_launched = st.button(
            "Launch run", type="primary", icon=":material/rocket_launch:", width="stretch", key="launch",
            disabled=bool(check.mistakes),
        )  # fmt: skip
        refused = st.container()
        _list_mistakes(check.mistakes, state)
        # A script fills the disk of another machine.
        if preflight is not None and preflight.disk_shortage and NO_ADDRESS not in check.mistakes:
            notice.show("warning", "The disk may become full", preflight.disk_shortage)
        for text in () if preflight is None or check.mistakes else preflight.notices:
            st.caption(with_code(text))
        form_state.show_save_draft(state)
        if spec is not None and preflight is not None:
            needs = preflight.needs
            left = preflight.steps_left(spec)
            st.caption(estimate(left))
            st.caption(resources(left, needs))
            if needs.gpu_memory is not None:
                _memory_parts(needs.gpu_memory.parts)
    if spec is None:
        return False, refused
    is_verl = spec.engine == "verl"
    if is_verl and check.mistakes:  # what cannot start here has its way out next to the reasons
        where.show_scripts(spec)
    if spec.algorithm.replays_experience and spec.algorithm.question_selection == GAUSSIAN:
        with st.container(border=True, key="bucket-weights-card"):
            buffer_charts.show_weights(spec.algorithm, bucket_meaning(asdict(spec.algorithm)))
    with st.container(border=True, key="spec-diff"):
        spec_text.show_changes(spec.model_dump(mode="json"), base.content, base.name)
    with st.container(border=True, key="spec-text"):
        st.markdown("**CLI command**")
        st.code(escape_control_characters(shell_command(base.command, changes)), language=None, wrap_lines=True)
        spec_text.show_download(spec.model_dump(mode="json"))
    if is_verl and not check.mistakes:
        where.show_scripts(spec)
    return is_launched, refused


def _verdict(check: FormCheck, count: str, *, has_changes: bool) -> None:
    verdict = (
        ":blue[:material/info:] **Ready for a script; no address yet**"
        if list(check.mistakes) == [NO_ADDRESS]
        else f":red[:material/error:] **{counted(len(check.mistakes), 'problem')} to fix**"
        if check.mistakes
        else ":orange[:material/help:] **Can be launched; the model is not checked**"
        if check.preflight is not None and lacks_model(check.preflight.look)
        else ":green[:material/check_circle:] **Ready to launch**"
    )
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(f"{verdict} &nbsp; :gray[{count}]", width="content")
        if has_changes:
            st.button(
                "Discard changes", type="tertiary", icon=":material/undo:", key="discard", on_click=form_state.forget
            )


def _list_mistakes(mistakes: Sequence[Mistake], state: FormState) -> None:
    for number, mistake in enumerate(mistakes):
        title = spec_form.section_to_fix(state, mistake)
        with st.container(key=f"mistake-{number}", gap="xxsmall"):
            st.markdown(with_code(mistake))
            if title is not None:
                st.button(
                    f"Open {title}", type="tertiary", icon=":material/arrow_back:", key=f"fix-{number}",
                    on_click=spec_form.open_section, args=(title,),
                )  # fmt: skip


def estimate(spec: TrainSpec) -> str:
    """Return in words how much the run will generate, or imitate."""
    algorithm = spec.algorithm
    tokens = counted(algorithm.max_response_tokens, "token")
    if spec.sft is not None:
        return (
            f"{counted(spec.num_steps, 'step')} of {counted(algorithm.batch_size, 'demonstration')} each: at most "
            f"{spec.num_steps * algorithm.batch_size:,} shown, of up to {tokens}."
        )
    per_step = algorithm.batch_size * algorithm.rollouts_per_question
    return (
        f"{counted(spec.num_steps, 'step')} of {counted(algorithm.batch_size, 'question')}, "
        f"{counted(algorithm.rollouts_per_question, 'rollout')} each: "
        f"at most {counted(spec.num_steps * per_step, 'rollout')} of up to {tokens}."
    )


def resources(spec: TrainSpec, needs: ResourceEstimate) -> str:
    """Return the memory and disk that the run needs, in words, as far as they are known."""
    disk = f"Disk: about {byte_size(needs.recordings)} of recordings"
    if needs.checkpoints is None or needs.memory is None:
        return f"{disk}; checkpoints and memory depend on the model, whose size is not known on this machine."
    disk += f" and {byte_size(needs.checkpoints)} of checkpoints."
    if needs.num_gpus:
        noun = "GPU" if needs.num_gpus == 1 else f"of {needs.num_gpus} GPUs"
        return f"{disk} Memory: up to {byte_size(needs.memory)} on each {noun}.{_time(spec)}"
    return f"{disk} Memory on the CPU: about {byte_size(needs.memory)} at its peak."


def _memory_parts(parts: Sequence[tuple[str, int, str]]) -> None:
    with st.expander("Memory of each GPU by part", icon=":material/memory:", key="gpu-memory"):
        sizes = [byte_size(size).replace(" ", "\N{NO-BREAK SPACE}") for _, size, _ in parts]
        rows = [f"| {name} | {size} | {note} |" for (name, _, note), size in zip(parts, sizes, strict=True)]
        st.markdown("\n".join(["| Part | Size | |", "|---|--:|---|", *rows]))


def _time(spec: TrainSpec) -> str:
    """Return a sentence on the time of a step and of the run on its GPUs, nothing where it is not known."""
    seconds, gpu = estimate_step_seconds(spec), type_of(spec.verl.gpu_gib)
    if seconds is None or gpu is None:
        return ""
    each = seconds * gpu.slowness
    return f" Time on {gpu.name}, coarsely: {duration(each)} per step, {duration(each * spec.num_steps)} in all."


@dataclass(frozen=True, slots=True)
class _Base:
    name: str
    command: str
    content: Mapping[str, Any]


def _base(spec: TrainSpec, start: StartingPoint) -> _Base:
    if start.parent is not None:
        return _Base("the parent", start.command, start.values)
    if spec.preset is None or not preset_exists(spec.preset):
        return _Base("the defaults", "exgrpo train", TrainSpec().model_dump(mode="json"))
    preset = load_preset(spec.preset).model_dump(mode="json")
    return _Base("the preset", f"exgrpo train --preset {shlex.quote(spec.preset)}", preset)
