"""One run in its tabs: live figures and curves or results, buffer, trajectories, reasoning, steps, log, settings."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import streamlit as st

from exgrpo.app import settings
from exgrpo.app.app_pages.tabs import buffer, reasoning, step, trajectories
from exgrpo.app.components.benchmarks import samples
from exgrpo.app.components.benchmarks.score_table import line_name, scored_names
from exgrpo.app.components.replay_buffer import step_verdicts
from exgrpo.app.components.runs import comparison, run_controls, run_details, run_header
from exgrpo.app.components.widgets import (
    address_choice,
    curves,
    data_table,
    notice,
    own_charts,
    page_frame,
    run_choice,
    run_state,
    shown_text,
    spec_text,
)
from exgrpo.app.page_list import TABS
from exgrpo.app.queries.answers import ask
from exgrpo.app.queries.runs import (
    TRAINING_RUNS,
    axis_points,
    has_folder,
    list_runs,
    log_file,
    metric_series,
    read_log,
    whole_curves,
    wrong_choices,
)
from exgrpo.db.queries import benchmarks, judging, metrics, runs
from exgrpo.db.queries.run_filter import RunFilter
from exgrpo.db.rows.runs import RunRow
from exgrpo.db.rows.spec_fields import UNREADABLE_KIND, benchmark_titles, may_replay
from exgrpo.jobs.specs.train import TrainSpec, load_preset, preset_exists

REFRESH_SECONDS = 2
CHECK_SECONDS = 5
BANNER_SECONDS = 30
TRAIN = "train"
REFRESHED = frozenset({"Curves", "Results", "Samples", "Log"})
"""Views that are drawn again as a run goes on; the others refresh parts of themselves."""
Views = dict[str, Callable[[RunRow], None]]


def _run_id() -> str | None:
    """Return the run in the address, else the one seen last, else the newest training run, and write it there."""
    run_id = st.query_params.get("run") or st.session_state.get("last-run")
    if run_id is None:
        rows = list_runs(TRAINING_RUNS) or list_runs(RunFilter())
        run_id = rows[0].run_id if rows else None
    if run_id is not None:
        st.query_params["run"] = st.session_state["last-run"] = run_id
    return run_id


@st.fragment(run_every=REFRESH_SECONDS)
def _wait_for(run_id: str) -> None:
    """Show the run as soon as the database knows it."""
    if ask(runs.get_run, run_id) is not None:
        st.rerun(scope="app")


def _live(seen: RunRow, was_asked: bool, has_figures: bool) -> None:
    """Show the live figures; a change of state, health or tags, or the end of a request, reruns the whole page.

    So does a step of a run that has ended: its last steps may be read after its state.
    """
    row = ask(runs.get_run, seen.run_id)
    if (
        row is None
        or (row.status, row.health, row.tags) != (seen.status, seen.health, seen.tags)
        or (run_state.pending(row) is not None) != was_asked
        or (row.step != seen.step and _often(row) is None)
    ):
        st.rerun(scope="app")
    run_header.show_stop(row)
    if not has_figures:
        return
    if row.kind == TRAIN:
        run_header.show_figures(row, ask(metrics.last_metrics, row.run_id), ask(metrics.list_evaluations, row.run_id))
    elif row.kind != UNREADABLE_KIND:
        run_header.show_job_progress(row)


def _banners(run_id: str) -> None:
    step_verdicts.show_banner(wrong_choices(run_id))
    run_header.show_notices(ask(metrics.step_notices, run_id))


def _curves(row: RunRow) -> None:
    spec = ask(runs.run_spec, row.run_id)
    evaluations = ask(metrics.list_evaluations, row.run_id, with_parents=True)
    charts, is_live = own_charts.of_address(), run_state.is_live(row)
    of_own = [key for chart in charts for key in (*chart.keys, chart.over) if key]
    recorded = comparison.own_charts_of(row.run_id) if row.is_recorded else []
    of_own += [curve.key for chart in recorded[: comparison.MAX_OWN] for curve in chart.curves]
    series = metric_series(row.run_id, list(dict.fromkeys([*curves.KEYS, *of_own])), with_parents=True)
    if not evaluations and not any(series.values()):
        if row.is_recorded:
            notice.show_empty("show_chart", "No curves", "These rollouts have no rewards; **Trajectories** shows them.")
        else:
            title, text = ("No steps yet", "The curves begin with") if is_live else ("No steps", "The run ended before")
            notice.show_empty("show_chart", title, f"{text} the first step.")
        return
    view, _ = own_charts.choose()
    view = replace(
        view, axis_points=axis_points(row.run_id, view.axis), branched_from=row.branched_from_step,
        opens_step=not row.is_fine_tuning,
    )  # fmt: skip
    run_details.show_own(charts, series, view)
    run_details.show_recorded(recorded, series, view)
    ratios = ask(metrics.replay_ratios, row.run_id) if may_replay(spec) else None
    titles = benchmark_titles(spec)
    run_details.show_curves(
        series, evaluations, ratios, view, is_live=is_live and not row.is_fine_tuning, titles=titles,
        rewards=ask(metrics.reward_counts, row.run_id),
    )  # fmt: skip
    data_table.export(
        lambda: whole_curves([row.run_id]), f"curves-{row.run_id}", formats=data_table.WHOLE_FORMATS, label="All steps"
    )


def _results(row: RunRow) -> None:
    if row.kind == "eval":
        run_details.show_scores(ask(benchmarks.list_scores, run_id=row.run_id))
        st.page_link(
            "app_pages/benchmarks.py", label="Compare these scores under Benchmarks", icon=":material/leaderboard:"
        )
        return
    judged = ask(runs.run_spec, row.run_id).get("judged", {})
    votes = [job for job in ask(judging.list_judges) if job.judge_run_id == row.run_id and job.num_votes]
    run_details.show_judge(votes, ask(judging.count_reasons, row.run_id))
    if judged.get("run_id"):
        address = {"run": str(judged["run_id"]), address_choice.VIEW: "Reasoning"}
        label = "See verdicts next to entropies in the run that was judged"
        st.page_link("app_pages/run.py", label=label, icon=":material/gavel:", query_params=address)


def _samples(row: RunRow) -> None:
    spec = ask(runs.run_spec, row.run_id)
    scored = ask(benchmarks.list_scores, run_id=row.run_id, limit=1)
    name = line_name(scored[0], scored_names(scored)) if scored else row.name
    samples.show(row.run_id, name, [str(choice["name"]) for choice in spec["benchmarks"]])


def _log(row: RunRow) -> None:
    shown_text.show_log(lambda words: read_log(row.run_id, words, shown_text.NUM_LINES), log_file(row.run_id))


def _settings(row: RunRow) -> None:
    if not row.has_settings:
        notice.show_empty("settings_alert", "No settings", "spec.json of this run cannot be read.")
        return
    spec = ask(runs.run_spec, row.run_id)
    if row.kind != TRAIN or row.is_recorded:
        run_details.show_whole(spec)
        return
    parent = ask(runs.get_run, row.parent_run_id) if row.parent_run_id else None
    if parent is not None and parent.kind == TRAIN:
        spec_text.show_changes(spec, ask(runs.run_spec, parent.run_id), f"its parent {parent.name}")
    base = load_preset(row.preset) if preset_exists(row.preset) else TrainSpec()
    name = f"preset {row.preset}" if preset_exists(row.preset) else "the defaults"
    spec_text.show_changes(spec, base.model_dump(mode="json"), name)
    run_details.show_whole(spec)


def _attempts(row: RunRow) -> None:
    attempts, checkpoints = ask(runs.list_attempts, row.run_id), ask(runs.list_checkpoints, row.run_id)
    run_details.show_attempts(row, attempts, checkpoints, settings.current().runs_root.resolve() / row.run_id)


def _checkpoint_actions(row: RunRow) -> None:
    with st.container(horizontal=True, wrap=False, gap="small", width="content"):
        run_controls.show_next(row, ask(runs.list_checkpoints, row.run_id))


def _notes(row: RunRow) -> None:
    run_controls.show_notes(ask(runs.get_run, row.run_id) or row, ask(runs.list_notes, row.run_id))


def _configuration(row: RunRow) -> None:
    if row.is_recorded:
        _settings(row)
        return
    views: Views = {"Settings": _settings, "Attempts": _attempts}
    name, tab = address_choice.tabs([*views], address_choice.PART)
    with tab:
        st.fragment(views[name], run_every=_often(row) if name == "Attempts" else None)(row)


def _often(row: RunRow) -> int | None:
    """Return the seconds after which a view that changes is drawn again; None of a run that has ended."""
    if settings.current().is_view:
        return REFRESH_SECONDS
    return CHECK_SECONDS if run_state.is_live(row) or run_state.pending(row) is not None else None


def _views(row: RunRow) -> Views:
    if row.kind != TRAIN:
        views: Views = {} if row.kind == UNREADABLE_KIND else {"Results": _results}
        views |= {"Samples": _samples} if row.kind == "eval" else {}
        return views | {"Log": _log, "Configuration": _configuration}
    shown = (_curves, buffer.show, trajectories.show, reasoning.show, step.show, _log, _configuration)
    views = dict(zip(TABS["run"], shown, strict=True))
    if row.is_fine_tuning:
        text = "Supervised fine-tuning learns from demonstrations: it generates, stores and replays no trajectory."
        missing = partial(notice.show_empty, "article", "No trajectories", text)
        views |= dict.fromkeys(("Buffer", "Trajectories", "Reasoning", "Step"), lambda _: missing())
    for name in ("Buffer", "Log") if row.is_recorded else ():
        del views[name]
    return views


def _controls(row: RunRow, refresh: int | None) -> bool:
    """Show what can be done to a run; return whether a copy of it is to be set up."""
    is_copied = run_controls.show(row)
    if row.kind == TRAIN and row.has_settings and not row.is_recorded:
        st.fragment(_checkpoint_actions, run_every=refresh)(row)
    st.fragment(_notes, run_every=refresh or CHECK_SECONDS)(row)
    return is_copied


def _show(row: RunRow) -> None:
    page_frame.show_title("Run", row.name)
    is_asked = run_state.pending(row) is not None
    is_view = settings.current().is_view
    refresh = REFRESH_SECONDS if is_asked or is_view or run_state.is_live(row) else None
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        run_header.show_identity(row)
        with st.container(horizontal=True, wrap=False, gap="small", width="content", key="run-controls"):
            is_copied = False if is_view else _controls(row, refresh)
            run_choice.show(row, _views)
    if is_copied:
        st.switch_page("app_pages/new_run.py", query_params={"from": row.run_id})
    if not is_asked:
        run_header.show_reason(row)
    run_header.show_faults(row)
    notice.show_unreadable_settings(row)
    if row.kind == TRAIN:
        st.fragment(_banners, run_every=BANNER_SECONDS if refresh else None)(row.run_id)
    views = _views(row)
    name, tab = address_choice.tabs([*views])
    with tab:
        st.fragment(_live, run_every=refresh or CHECK_SECONDS)(row, is_asked, name in {"Curves", "Results"})
        if name in REFRESHED:
            st.fragment(views[name], run_every=_often(row))(row)
        else:
            views[name](row)


run_id = _run_id()
row = ask(runs.get_run, run_id) if run_id else None
if row is not None:
    _show(row)
else:
    st.title("Run", anchor=False)
    if run_id is None:
        notice.show_empty("replay", "No runs yet", "Set up your first one under **New run**.", "exgrpo demo")
    elif has_folder(run_id):
        notice.show_empty("hourglass_empty", "Queued", "The run starts shortly.")
        _wait_for(run_id)
    else:
        notice.show_no_such_run()
