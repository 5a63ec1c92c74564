"""What executing a step again found: a verdict for each stage, and every comparison."""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing

import pandas as pd
import streamlit as st

from exgrpo.app import address, settings
from exgrpo.app.components.widgets import data_table, figures, grid, notice
from exgrpo.app.formats import NONE_SHOWN, counted, known, with_code
from exgrpo.app.queries.answers import ask, kept
from exgrpo.app.settings import runs_root
from exgrpo.db.queries.selections import MAX_WRONG
from exgrpo.db.rows.replays import WrongChoiceRow
from exgrpo.db.rows.runs import RunRow
from exgrpo.jobs.actions import page_commands
from exgrpo.jobs.actions.replay.facts import Fact, Outcome, ReplayRow, Stage, summed_over, summed_up
from exgrpo.jobs.actions.replay.steps import obstacles, step_facts

MAX_NAMED = 5
OF_TORCH = (Stage.LOSS, Stage.UPDATE)
NOT_EXECUTED = "not executed"


def facts_of(row: RunRow, step: int, changes: Sequence[str] = (), method: str | None = None) -> Sequence[Fact]:
    """Return every comparison of a step, with other settings if there are any; see `replay.steps.step_facts`."""
    return kept(ask, step_facts, runs_root(), row.run_id, step, tuple(changes), method, until=row.attempt)


def show(
    row: RunRow, step: int, facts: Sequence[Fact], changes: Sequence[str] = (), method: str | None = None
) -> None:  # fmt: skip
    """Show the stages in a row, what differs, and all comparisons; other settings are meant to differ."""
    key = f"update-{row.run_id}-{step}-{'-'.join(changes)}-{method}"
    is_other = bool(changes or method)
    rows = [*summed_up(step, facts), *(item for item in st.session_state.get(key, ()) if item.stage in OF_TORCH)]
    missing = obstacles(runs_root(), row.run_id, step)
    figures.show_tiles([_tile(stage, rows, is_other, missing.get(stage)) for stage in Stage])
    differing = [item for item in rows if item.outcome is Outcome.DIFFERS]
    if differing and not (is_other or row.is_recorded):
        named = [f"{item.stage}, {item.compared}: {item.first_difference}" for item in differing[:MAX_NAMED]]
        more = [f"and {len(differing) - MAX_NAMED} more"] if len(differing) > MAX_NAMED else []
        notice.show("error", "This step contradicts its settings", "\n".join([*named, *more]))
    notes = [*(item.note for item in rows), *(() if is_other or row.is_recorded else missing.values())]
    for note in dict.fromkeys(filter(None, notes)):
        st.caption(with_code(note))
    with st.expander(counted(len(rows), "comparison"), is_other, icon=":material/fact_check:"):
        gaps = {"Largest difference": st.column_config.NumberColumn(format="%.3g")}
        name = f"replay-step-{step}{'-changed' if is_other else ''}"
        data_table.show(table(rows), name, "Comparisons of the step by stage", gaps, most=12)
    if Stage.LOSS not in missing and key not in st.session_state and not settings.current().is_view:
        options = [*(f"--set={change}" for change in changes), *([f"--method={method}"] if method else [])]
        update = [] if Stage.UPDATE in missing else ["--update"]
        label = f"Execute loss{' and update' * len(update)}{' with it' * bool(options)}"
        told = "Loads the checkpoint before the step; `exgrpo replay --update` does the same."
        words = label, told if update else "From recorded log-probs; `exgrpo replay` does the same."
        _offer(row, key, [f"--step={step}", *options, *update], words)


def table(rows: Sequence[ReplayRow]) -> pd.DataFrame:
    """Return one row for each kind of comparison."""
    return pd.DataFrame(
        {
            "Stage": [row.stage for row in rows],
            "Compared": [row.compared for row in rows],
            "Result": [row.outcome for row in rows],
            "Values": [row.num_compared for row in rows],
            "Different": [row.num_different for row in rows],
            "Largest difference": [known(row.largest_difference) for row in rows],
            "First difference or note": [
                ". ".join(filter(None, (row.first_difference, row.note))) or NONE_SHOWN for row in rows
            ],
        }
    )


def _tile(stage: Stage, rows: Sequence[ReplayRow], is_other: bool, missing: str | None) -> tuple[str, str, str]:
    of_stage = [row for row in rows if row.stage is stage and row.outcome is not Outcome.NO_EFFECT]
    if not of_stage:
        if stage in OF_TORCH:
            return stage.title(), NOT_EXECUTED, "by the button below" if missing is None else "cannot be executed"
        return stage.title(), NONE_SHOWN, "not changed by this" if is_other else "nothing to compare"
    counts = Counter(row.outcome for row in of_stage)
    verdict = next(outcome for outcome in (Outcome.DIFFERS, Outcome.SAME, Outcome.UNKNOWN) if counts[outcome])
    compared = counted(len(of_stage), "comparison")
    words = {Outcome.DIFFERS: "differ", Outcome.UNKNOWN: Outcome.UNKNOWN}
    told = (f"{counts[outcome]} of {compared} {word}" for outcome, word in words.items() if counts[outcome])
    return stage.title(), verdict, next(told, compared)


def show_all(row: RunRow, steps: Sequence[int]) -> None:
    """Show the sums of all comparisons of all steps and the places that differ, once someone asks for them."""
    key = f"all-{row.run_id}-{steps[-1]}"
    with st.expander(f"All {counted(len(steps), 'step')}", icon=":material/functions:"):
        if key in st.session_state:
            rows = summed_over(st.session_state[key])
            frame = table(rows)
            frame.insert(3, "Step", [item.step if item.outcome is Outcome.DIFFERS else None for item in rows])
            gaps = {"Largest difference": st.column_config.NumberColumn(format="%.3g")}
            data_table.show(
                frame.dropna(axis="columns", how="all"), "replay-all", "Comparisons of all steps", gaps, most=12
            )
            _show_places(st.session_state[key])
        else:
            told = "Without the update; `exgrpo replay --steps` does the same."
            _offer(row, key, [f"--steps={steps[0]}:{steps[-1]}"], ("Execute all steps", told))


def _show_places(rows: Sequence[ReplayRow]) -> None:
    """Show the steps and their questions in which something differs; a click opens the step with the question."""
    found: dict[tuple[int, int | None], list[str]] = {}
    for row in rows:
        if row.outcome is Outcome.DIFFERS:
            for question in row.questions or (None,):
                found.setdefault((row.step, question), []).append(f"{row.stage}: {row.compared}")
    places = sorted(found, key=lambda place: (place[0], -1 if place[1] is None else place[1]))
    frame = pd.DataFrame(
        {
            "Step": [step for step, _ in places],
            "Question": [question for _, question in places],
            "Differs": ["; ".join(found[place]) for place in places],
        },
        dtype=object,
    )
    if not places:
        st.caption("No step differs from what was recorded.")
        return
    num_steps, shown = len({step for step, _ in places}), places[:MAX_WRONG]
    data_table.show_caption(
        f"{counted(num_steps, 'step')} {'differs' if num_steps == 1 else 'differ'} from what was recorded"
        + (f", the first {MAX_WRONG} of {len(places):,} places are listed" if len(places) > len(shown) else "")
        + "; click a row to open the step with the question",
        frame, "replay-differing", formats=data_table.WHOLE_FORMATS,
    )  # fmt: skip

    def open_place(chosen: str) -> None:
        step, question = places[int(chosen)]
        address.put({"step": str(step), "question": None if question is None else str(question)})

    clicks = grid.Clicks([*map(str, range(len(shown)))], open_place)
    grid.draw(
        frame.head(len(shown)), "replay-differing", "Steps and questions that differ from the record", None, 12, clicks
    )


def _offer(row: RunRow, key: str, options: Sequence[str], words: tuple[str, str]) -> None:
    """Show the button, with a hint, that executes steps in a process of its own and keeps the rows."""
    label, told = words
    if not st.button(label, icon=":material/model_training:", key=f"start-{key}", help=told):
        return
    line = st.empty()
    with (
        notice.refusals("Not executed"),
        closing(
            page_commands.execute_steps(runs_root(), settings.current().database_url, row.run_id, options)
        ) as stream,
    ):
        for rows in stream:
            if rows is not None:
                st.session_state[key] = rows
            # Writing to the page is where Streamlit ends a script whose page was left.
            line.caption("Recorded steps are executed again.")
    line.empty()
    if key in st.session_state:
        st.rerun()


def show_banner(wrong: Sequence[WrongChoiceRow]) -> None:
    """Show the banner where any selection of a run contradicts its scores, nothing otherwise."""
    if wrong:
        named = ", ".join(f"step {row.step} question {row.question_index}" for row in wrong[:MAX_NAMED])
        least = "At least " if len(wrong) >= MAX_WRONG else ""
        notice.show(
            "error",
            "This run has choices that contradict their scores",
            f"{least}{len(wrong)} selections, first {named}. Later results of this run rest on them.",
        )
