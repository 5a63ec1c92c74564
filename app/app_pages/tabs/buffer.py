"""Run, Buffer: the replay buffer after any step, and what moved."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from exgrpo.app.components.replay_buffer import buffer_charts, buffer_over_steps
from exgrpo.app.components.replay_buffer.buffer_charts import View
from exgrpo.app.components.widgets import address_choice, data_table, figures, notice, run_choice, run_state
from exgrpo.app.formats import counted, known, literal
from exgrpo.app.queries.answers import ask
from exgrpo.app.queries.runs import metric_series, training_names
from exgrpo.db.queries import buffer, replay_concentration, runs
from exgrpo.db.queries import retirement as retirement_queries
from exgrpo.db.rows.display_names import distinct_names
from exgrpo.db.rows.replays import RetirementLine
from exgrpo.db.rows.runs import BucketRow, RunRow
from exgrpo.db.rows.spec_fields import algorithm_settings, bucket_meaning, has_continuous_rewards, may_replay

RETIRED = (
    "A question is retired if all n of its rollouts are correct. If its true success rate is p, that happens with "
    "probability pⁿ. The column **By chance** adds up these probabilities over all attempts. It uses p = k/K of the "
    "question's bucket, and n = K, or n = K - 1 next to a replay. Because k/K comes from one group, rates near 1 are "
    "overestimated, and so is the column. **Tried again** counts later attempts at retired questions. Reviews "
    "(`review_interval`) and `retired: redraw` make such attempts."
)
VIEWS = ["Buckets", "Flow", "Ages and replays", "Over time", "Concentration", "Retired"]
_OF_TWO_STEPS, _OF_ALL_STEPS = VIEWS[:2], VIEWS[3:]
"""Views that compare a step with another one, and those in which no step is chosen."""
ENTROPY_STEPS = 10
REFRESH_SECONDS = 3


def retired_table(lines: Sequence[RetirementLine]) -> pd.DataFrame:
    """Return one row per bucket."""
    return pd.DataFrame(
        {
            "Bucket before": ["none" if line.bucket is None else str(line.bucket) for line in lines],
            "Attempts": [line.num_attempts for line in lines],
            "Retired": [line.num_retired for line in lines],
            "By chance": [known(line.num_expected) for line in lines],
            "Tried again": [line.num_retests for line in lines],
            "% correct again": [known(100 * line.retest_rate) for line in lines],
            "% all correct again": [known(100 * line.retest_solved) for line in lines],
        }
    )


def _steps(row: RunRow, name: str) -> tuple[int, int, RunRow]:
    """Show the choice of the view's step and of the one to compare with; return both steps and the run of the second.

    A view has only the choices that change it.
    """
    if name in _OF_ALL_STEPS or (row.step == 1 and name not in _OF_TWO_STEPS):
        return row.step, row.step // 2, row
    if name not in _OF_TWO_STEPS:
        return address_choice.select_step("After step", 1, row.step, row.step, "step"), row.step // 2, row
    left, right = st.columns([3, 1], gap="medium", vertical_alignment="bottom")
    with left:
        step = address_choice.select_step("After step", 1, row.step, row.step, "step") if row.step > 1 else 1
    with right, st.popover("Compared with", icon=":material/compare_arrows:", key="compared", width="stretch"):
        other = _other(row)
        last = max(1, other.step)
        usual = last // 2 if other.run_id == row.run_id else last
        base = address_choice.select_step("Compare with step", 0, last, usual, "base")
    return step, base, other


def _other(row: RunRow) -> RunRow:
    """Show the choice of the run to compare with, this one by default, and return it."""
    wanted = st.query_params.get("against")
    chosen = ask(runs.get_run, wanted) if wanted else None
    other = chosen if chosen is not None and chosen.kind == "train" and chosen.step else row
    offered = {run_name.run_id: run_name.name for run_name in training_names(has_steps=True)}
    names = {row.run_id: "this run"} | distinct_names((offered | {other.run_id: other.name}).items())
    names[row.run_id] = "this run"
    run_choice.select("of", names, "against", other.run_id, f"against-{row.run_id}", has_steps=True)
    return other


def _newer(run_id: str, seen: int) -> None:
    """Show that a live run has newer steps, without changing the displayed step."""
    row = ask(runs.get_run, run_id)
    if (
        row is not None
        and row.step > seen
        and st.button(f"The run is at step {row.step:,} now", icon=":material/refresh:", key="newer", type="tertiary")
    ):
        st.rerun(scope="app")


def _buckets(view: View, algorithm: dict[str, Any], rows: list[BucketRow]) -> None:
    num_buckets, meaning = algorithm["rollouts_per_question"], bucket_meaning(algorithm)
    first = max(1, view.step - ENTROPY_STEPS + 1)
    scores = ask(buffer.scores_by_bucket, view.run_id, first, view.step)
    with figures.grid("buckets"):
        figures.show_card(
            "Bucket sizes", "questions", buffer_charts.sizes(view, num_buckets, meaning), "sizes",
            "Bars: questions in each bucket after the step, with lines for the step compared with",
        )  # fmt: skip
        figures.show_card(
            f"Draws of step {view.step:,}", "questions", buffer_charts.draws(rows, meaning), "draws",
            "Bars: questions drawn from each bucket, with lines for the number that the probabilities expect",
        )  # fmt: skip
        figures.show_card(
            "Entropy by bucket", f"nats per token, last {ENTROPY_STEPS} steps", buffer_charts.entropies(scores),
            "entropies", "Boxes: entropy of chosen and other candidates by bucket",
        )  # fmt: skip
        with st.container():
            num_stored, num_retired = len(view.state.buckets), len(view.state.retired)
            st.markdown(f"**{num_stored:,}** questions in the buffer, **{num_retired:,}** retired{limits(algorithm)}")
            bars = [f"bucket:{bucket}" for bucket in sorted(set(view.state.buckets.values()))]
            buffer_charts.choose("Show questions", [*bars, "retired:all"], "bar-buckets")


def limits(algorithm: dict[str, Any]) -> str:
    """Return the limits of the buffer, "" if there are none."""
    capacity, age = algorithm.get("buffer_capacity"), algorithm.get("buffer_age")
    found = [f"at most **{capacity:,}** trajectories"] if capacity else []
    found += [f"none older than **{counted(age, 'step')}**"] if age else []
    return "".join(f", {limit}" for limit in found)


def _flow(view: View, _algorithm: dict[str, Any], _rows: list[BucketRow]) -> None:
    view = view.forward()
    figure = buffer_charts.flow(view)
    figures.show_card(
        f"From {literal(view.then)} to {view.now}", "questions; blue: easier now, orange: harder now, violet: retired",
        figure, "flow", f"Flow of questions between buckets, from {view.then} to {view.now}",
    )  # fmt: skip
    bars = [f"flow:{was}:{now}" for (was, now), _ in view.flows().most_common()]
    buffer_charts.choose("Show questions", bars, "bar-flow")


def _ages(view: View, _algorithm: dict[str, Any], _rows: list[BucketRow]) -> None:
    stored = ask(buffer.stored_trajectories, view.run_id, view.step)
    counts = Counter(row.rollout_step for row in stored)
    ages = {view.step - step: count for step, count in sorted(counts.items(), reverse=True)}
    replays = dict(sorted(Counter(row.num_replays for row in stored).items()))
    age = buffer_charts.counts(ages, "age, steps", "age")
    replayed = buffer_charts.counts(replays, "times replayed", "replays")
    with figures.grid("ages"):
        with st.container():
            figures.show_card(
                "Age of stored trajectories", "trajectories", age, "ages", "Bars: stored trajectories by age in steps"
            )
            buffer_charts.choose("Show questions", [f"rollout:{step}" for step in sorted(counts)], "bar-rollout")
        with st.container():
            figures.show_card(
                "Replays of stored trajectories", "trajectories", replayed, "replays",
                "Bars: stored trajectories by how often they were replayed",
            )  # fmt: skip
            buffer_charts.choose("Show questions", [f"replays:{count}" for count in replays], "bar-replays")


def _over_time(view: View, algorithm: dict[str, Any], _rows: list[BucketRow]) -> None:
    series = metric_series(view.run_id, buffer_over_steps.KEYS)
    retired = series["buffer/num_retired"]
    buffer_over_steps.show_heatmap(view.run_id, algorithm, int(retired[-1].value) if retired else 0)
    buffer_over_steps.show_area(series, "buffer-area")


def _concentration(view: View, _algorithm: dict[str, Any], _rows: list[BucketRow]) -> None:
    with figures.grid("concentration"):
        buffer_over_steps.show_replays(ask(replay_concentration.replay_concentration, view.run_id))
        buffer_over_steps.show_answers(ask(replay_concentration.answer_diversity, view.run_id))


def _retired(view: View, algorithm: dict[str, Any], _rows: list[BucketRow]) -> None:
    if has_continuous_rewards(algorithm):
        notice.show_empty("task_alt", "No question retires", "With continuous rewards no question counts as solved.")
        return
    run_id = view.run_id
    lines = ask(retirement_queries.retirement_lines, run_id, algorithm["rollouts_per_question"])
    if not any(line.num_retired for line in lines):
        notice.show_empty(
            "task_alt", "Nothing was retired yet", "A question retires when all K trajectories are right."
        )
        return
    rate = st.column_config.NumberColumn(format="%.1f")
    data_table.show_card(
        "Retired questions", retired_table(lines), "retired-questions",
        "Attempts, retired questions, those that only chance retires, and later attempts, by bucket",
        dict.fromkeys(("By chance", "% correct again", "% all correct again"), rate), RETIRED,
    )  # fmt: skip
    st.caption("This asks a checkpoint every retired question again, and scores it under Benchmarks:")
    benchmark = "-b retired=retired.jsonl"
    ask_again = f"exgrpo query retired {run_id} --lines > retired.jsonl\nexgrpo eval {run_id}@last {benchmark}"
    st.code(ask_again, language=None)


def _show(row: RunRow, algorithm: dict[str, Any], name: str) -> None:
    step, base, other = _steps(row, name)
    if run_state.is_live(row):
        st.fragment(_newer, run_every=REFRESH_SECONDS)(row.run_id, row.step)
    states = ask(buffer.state_at, row.run_id, step), ask(buffer.state_at, other.run_id, base)
    view = View(row.run_id, step, base, *states, "" if other.run_id == row.run_id else other.name)
    num_other = ask(buffer.count_other_questions, row.run_id, other.run_id) if view.other else 0
    if num_other:
        notice.show(
            "warning",
            "Other questions",
            f"{counted(num_other, 'question')} of this run not asked in {other.name}.",
        )
    rows = ask(buffer.buckets_at, row.run_id, step)
    views = dict(zip(VIEWS, (_buckets, _flow, _ages, _over_time, _concentration, _retired), strict=True))
    views[name](view, algorithm, rows)
    bar = st.query_params.get(buffer_charts.ADDRESS)
    if bar and name in VIEWS[:3]:
        buffer_charts.show_questions(view.forward() if bar.startswith("flow:") else view, bar)


def show(row: RunRow) -> None:
    """Show the buffer of the run, or why it has none."""
    spec = ask(runs.run_spec, row.run_id)
    if row.is_recorded and not may_replay(spec):
        text = "This run was recorded outside of the workbench: what it replayed is not known."
        notice.show_empty("help", "Unknown", text)
    elif not may_replay(spec):
        notice.show_empty("replay", "No replay buffer", "This run is on-policy: it stores and replays nothing.")
    elif not row.step:
        notice.show_empty("hourglass_empty", "No steps yet", "The buffer begins with the first step.")
    else:
        st.caption(
            "Correct responses that are stored for replay. A bucket holds the questions with the same number of "
            "correct responses among their last K rollouts. Fully solved questions are retired."
        )
        name, tab = address_choice.tabs(VIEWS, address_choice.PART)
        with tab:
            _show(row, algorithm_settings(spec), name)
