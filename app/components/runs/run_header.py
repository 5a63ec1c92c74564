"""The top of a run's page: name, state, progress, pace, scores."""

import math
from collections.abc import Mapping, Sequence

import streamlit as st

from exgrpo.app.components.widgets import copied_text, figures, notice, run_state
from exgrpo.app.components.widgets.spec_text import option_text, setting_name
from exgrpo.app.formats import (
    NONE_SHOWN,
    ago,
    badge_label,
    counted,
    duration,
    escape_control_characters,
    exact,
    literal,
    number,
    seconds,
    share,
)
from exgrpo.app.queries.answers import ask
from exgrpo.app.queries.runs import clock_at_end
from exgrpo.app.settings import runs_root
from exgrpo.db.queries import metrics, runs
from exgrpo.db.rows.display_names import BATCH_PASS_RATE, held_out_score, model_name, shorten
from exgrpo.db.rows.runs import EvaluationRow, RunRow, StepNotice
from exgrpo.db.rows.spec_differences import differences
from exgrpo.db.statistics import interval_text
from exgrpo.jobs.actions.progress import describe_stop
from exgrpo_core.recording.run_status import RunStatus

_MAX_CHANGES = 3
"""Of a branch's settings that are not its parent's, those in its header."""
_MAX_SENTENCES = 5


def show_identity(row: RunRow) -> None:
    """Show the run's name, state and origin; names are plain text."""
    scored, _, step = row.model.partition("@") if row.kind == "eval" else ("", "", "")
    scored_run = ask(runs.get_run, scored) if step else None
    if not row.has_settings:
        facts = ["settings unknown"]
    elif row.is_recorded:
        facts = ["recorded outside of the workbench", row.dataset]
    else:
        facts = [row.method, "" if scored_run else model_name(row.model), row.dataset]
        if row.kind == "train":
            facts += [f"preset {row.preset}" if row.preset else "no preset", row.engine]
    with st.container(key="run-identity", width="content"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.title(literal(row.name), anchor=False, width="content")
            run_state.show(row, run_state.pending(row))
            if row.is_synthetic:
                st.badge(
                    "synthetic run", icon=":material/science:", color="orange",
                    help="Made up by `python -m bench.synthetic_runs`; nothing of it was recorded",
                )  # fmt: skip
            if row.is_archived:
                st.badge("archived", icon=":material/archive:", color="gray")
            for tag in row.tags:
                st.badge(badge_label(tag), icon=":material/sell:", color="blue")
        with st.container(key="run-facts", horizontal=True, vertical_alignment="center", gap="xxsmall"):
            st.text(
                escape_control_characters(" · ".join(fact for fact in facts if fact)), width="content",
                help=f"Attempt {row.attempt}, created {exact(row.created_at)}",
            )  # fmt: skip
            copied_text.show(row.run_id, "Copy the run's ID", "copied-run-id")
            _show_parent(row)
            if scored_run is not None:
                label, query = literal(f"scores {scored_run.name}, step {step}"), {"run": scored}
                st.page_link("app_pages/run.py", label=label, icon=":material/flag:", query_params=query, help=scored)


def _show_parent(row: RunRow) -> None:
    """Show which run a branch continues, as a link to it while it is there."""
    if row.parent_run_id is None or row.branched_from_step is None:
        return
    parent = ask(runs.get_run, row.parent_run_id)
    changes = (
        differences(ask(runs.run_spec, row.parent_run_id), ask(runs.run_spec, row.run_id))
        if parent and parent.has_settings and row.has_settings
        else []
    )
    fields = [
        f"{setting_name(change.path)} {shorten(option_text(change.after))}"
        for change in changes
        if change.path not in {"name", "tags"}
    ]
    label = f"continues {parent.name if parent else row.parent_run_id} from step {row.branched_from_step:,}" + (
        f", {', '.join(fields[:_MAX_CHANGES])}" + ", ..." * (len(fields) > _MAX_CHANGES) if fields else ""
    )
    st.page_link(
        "app_pages/run.py", label=literal(label), icon=":material/call_split:", query_params={"run": row.parent_run_id},
        disabled=parent is None, help=row.parent_run_id if parent else "The run was deleted",
    )  # fmt: skip


def show_notices(notices: Sequence[StepNotice]) -> None:
    """Show what the newest steps said about themselves, if any did; steps that said the same share a line."""
    steps: dict[str, list[str]] = {}
    for item in reversed(notices):
        steps.setdefault(item.text, []).append(f"{item.step:,}")
    if steps:
        notice.show(
            "warning", "Notices of steps", "\n".join(f"step {', '.join(of)}: {text}" for text, of in steps.items())
        )


def show_reason(row: RunRow) -> None:
    """Show why the run failed or was lost, if it was."""
    if row.status == RunStatus.FAILED:
        notice.show("error", "The run failed", row.status_reason or "It gave no reason; see the log.")
    elif row.status == RunStatus.LOST:
        usual = "Its process ended without an outcome. Resume continues from the latest checkpoint."
        notice.show("warning", "The run was lost", row.status_reason or usual)
    elif row.status_reason and row.status in {RunStatus.QUEUED, RunStatus.STOPPED} and not row.is_imported:
        notice.show("info", run_state.state_name(row.status).capitalize(), row.status_reason)


def show_faults(row: RunRow) -> None:
    """Show which files of the run are damaged, and why not all of it is shown."""
    if row.not_shown:
        notice.show("warning", "Not all of this run is shown", row.not_shown)
    if row.left_out:
        more = len(row.left_out) - _MAX_SENTENCES
        further = [f"{more} more sentences are printed by exgrpo query run {row.run_id}."] if more > 0 else []
        notice.show("info", "Not all was recorded", "\n".join([*row.left_out[:_MAX_SENTENCES], *further]))
    if row.faults:
        advice = f"exgrpo verify {row.run_id} checks every file and says what can be recovered."
        notice.show("warning", "Files of this run are damaged", "\n".join([*row.faults, advice]))


def show_stop(row: RunRow) -> None:
    """Show what a stopping run waits for."""
    waits_for = describe_stop(runs_root(), row.run_id) if row.status == RunStatus.STOPPING else None
    if waits_for is not None:
        notice.show("info", "Stopping", waits_for)


def show_figures(row: RunRow, last: Mapping[str, float], evaluations: Sequence[EvaluationRow]) -> None:
    """Show progress and the newest figures as tiles."""
    with st.container(gap="small"):
        if row.has_settings and not row.is_recorded:
            st.progress(run_state.fraction(row), text=_progress_text(row))
        else:
            st.caption(f"Newest step: {row.step:,}")
        if row.is_fine_tuning:
            _fine_tuning_tiles(row, last, evaluations)
            return
        # Of a run that others recorded only what is known has a tile.
        shows_pass_rate = not row.is_recorded or row.last_pass_at_1 is not None
        shows_time = not row.is_recorded or _seconds_taken(row) is not None
        tiles = iter(st.columns(3 * (not row.is_recorded) + shows_pass_rate + shows_time or 1, gap="small"))
        if shows_time:
            _pace_tile(next(tiles), row)
        if shows_pass_rate:
            figures.show_tile(
                next(tiles), BATCH_PASS_RATE, share(row.last_pass_at_1),
                _of_step(row, last),
                explanation="Share of fresh rollouts of the last batch that are correct",
            )  # fmt: skip
        if row.is_recorded:
            return
        _held_out_tile(next(tiles), row, evaluations)
        figures.show_tile(
            next(tiles), "Replay buffer", _count(last, "buffer/num_questions"), _trajectories(last),
            explanation="Questions in the buffer; below, trajectories stored for them and replayed in the last step",
        )  # fmt: skip
        figures.show_tile(
            next(tiles), "Retired", _count(last, "buffer/num_retired"),
            explanation="Questions that were solved in all K rollouts, which an on-policy run counts and keeps drawing",
        )  # fmt: skip


def _fine_tuning_tiles(row: RunRow, last: Mapping[str, float], evaluations: Sequence[EvaluationRow]) -> None:
    """Show what supervised fine-tuning has: pace, loss, gradient, and a held-out score where there is one."""
    pace, loss, norm, *rest = st.columns(3 + bool(evaluations), gap="small")
    _pace_tile(pace, row)
    meaning = "Mean -log probability of the demonstrations' tokens in the newest batch, nats"
    figures.show_tile(loss, "SFT loss", _count(last, "loss/sft"), f"step {row.step:,}" if last else None, meaning)
    figures.show_tile(norm, "Gradient norm", _count(last, "optim/gradient_norm"), None, "Before clipping")
    for tile in rest:
        _held_out_tile(tile, row, evaluations)


def show_job_progress(row: RunRow) -> None:
    """Show how far an evaluation or a judge is, and the time left."""
    done, total = run_state.pieces(row)
    noun = "questions" if row.kind == "eval" else "votes"
    text = f"{done:,} of {total:,} {noun}" if total else f"No {noun} counted yet"
    left = run_state.seconds_left(row)
    if left is not None:
        text += f" · {duration(left)} left"
    elif (taken := _seconds_taken(row)) is not None:
        text += f" · took {duration(taken)}"
    st.progress(run_state.fraction(row), text=text)


def _pace_tile(tile: st.delta_generator.DeltaGenerator, row: RunRow) -> None:
    if run_state.is_live(row):
        title, value, meaning = "Time left", run_state.seconds_left(row), "At the pace of the last steps"
        pace = f"{seconds(row.seconds_per_step)} per step lately" if row.seconds_per_step else None
    else:
        title, value, meaning = "Time taken", _seconds_taken(row), "From start to end; below, the mean of all steps"
        mean = ask(metrics.mean_step_seconds, row.run_id)
        pace = f"{seconds(mean)} per step" if mean else None
    figures.show_tile(tile, title, duration(value), pace, meaning)


def _seconds_taken(row: RunRow) -> float | None:
    """Return the time from a run's start to its end, of a lost one to its last event; None where one is unknown.

    If the clock was set back, the time is at least that of the steps.
    """
    end = row.last_event_at if row.status == RunStatus.LOST else row.ended_at
    if row.started_at is None or end is None:
        return None
    of_steps = clock_at_end(row) if row.kind == "train" else None
    taken = (end - row.started_at).total_seconds()
    taken = taken if of_steps is None else max(taken, of_steps)
    return taken if taken >= 0.0 else None


def _held_out_tile(tile: st.delta_generator.DeltaGenerator, row: RunRow, evaluations: Sequence[EvaluationRow]) -> None:
    held_out = [evaluation for evaluation in evaluations if evaluation.question_set == "held_out"]
    below = []
    gain = ask(metrics.held_out_gain, row.run_id) if held_out else None
    if gain is not None:
        ends = interval_text((gain.low, gain.high))
        below.append(f"{100 * gain.value:+z.1f}" + (f" ({ends})" if ends else ""))
    if held_out:
        ends = interval_text(held_out[-1].interval, 0)
        below.append((f"{ends}% " if ends else "") + f"of {held_out[-1].num_questions:,}")
    tile.metric(
        held_out_score(held_out[-1].samples_per_question if held_out else None),
        share(held_out[-1].avg_at_n if held_out else row.last_avg_at_n),
        " · ".join(below) or None, border=True, height="stretch", delta_color="normal" if len(below) > 1 else "off",
        delta_arrow="auto" if len(below) > 1 else "off",
        help="Mean correctness on questions that are not trained on; below, the gain of the same questions since the "
        "first evaluation (a branch's is its parent's) in points, and the score's interval; both 95% over questions",
    )  # fmt: skip


def _of_step(row: RunRow, last: Mapping[str, float]) -> str | None:
    """Return which step, and how many rollouts, a batch's score is of."""
    if row.last_pass_at_1 is None:
        return None
    of_step = last.get("tokens/generated", 0.0) / (last.get("response/mean_tokens") or math.nan)
    return f"step {row.step:,}" + (f", {counted(round(of_step), 'rollout')}" if of_step > 0.0 else "")


def _progress_text(row: RunRow) -> str:
    done, total = run_state.pieces(row)
    text = f"Step {done:,} of {total:,}"
    if row.token_budget and row.generated_tokens is not None:
        text = f"Step {done:,} · {row.generated_tokens:,.0f} of {row.token_budget:,} generated tokens"
    text += f" · {100 * run_state.fraction(row):.0f}%"
    return f"{text} · last data {ago(row.last_event_at)}" if row.last_event_at and run_state.is_live(row) else text


def _count(last: Mapping[str, float], key: str) -> str:
    return number(last[key]) if key in last else NONE_SHOWN


def _trajectories(last: Mapping[str, float]) -> str | None:
    parts = {"stored": last.get("buffer/num_trajectories"), "replayed": last.get("replay/num_replayed")}
    return ", ".join(f"{number(count)} {word}" for word, count in parts.items() if count is not None) or None
