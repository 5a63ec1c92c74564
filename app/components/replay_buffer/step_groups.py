"""The groups of a step: their rewards and advantages, what was replayed, and why that was chosen."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from exgrpo.app import address, formats, theme
from exgrpo.app.components.widgets import address_choice, data_table, figures, grid, notice, shown_text
from exgrpo.app.formats import NATS_HOVER, counted, escape_control_characters, known, literal, nats, share
from exgrpo.app.queries.answers import ask
from exgrpo.db.queries import buffer, recorded_steps, runs, selections
from exgrpo.db.rows.replays import SelectionRow, StepTrajectoryRow, age
from exgrpo.db.rows.runs import BucketRow, CandidateRow
from exgrpo.db.rows.spec_fields import algorithm_settings
from exgrpo.jobs.actions.replay.facts import Fact, Outcome, Stage
from exgrpo_core.strategies.exgrpo import LowestEntropy
from exgrpo_core.types import Question

_ROWS_IN_VIEW, _PROMPT_CHARACTERS = 12, 60
_FROM_FILE = "from a file"


@dataclass(slots=True)
class Group:
    """What a step has of one question; `then` has the comparisons with another setting."""

    question_index: int
    question: Question | None = None
    trajectories: list[StepTrajectoryRow] = field(default_factory=list)
    selection: SelectionRow | None = None
    candidates: list[CandidateRow] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    then: list[Fact] = field(default_factory=list)

    @property
    def replayed(self) -> list[StepTrajectoryRow]:
        """What was replayed."""
        return [row for row in self.trajectories if row.is_replayed]


def groups_of(run_id: str, step: int, facts: Sequence[Fact], then: Sequence[Fact]) -> list[Group]:
    """Return the groups of a step in the order of questions, and questions that only another setting draws."""
    found: dict[int, Group] = defaultdict(lambda: Group(-1))
    for row in ask(recorded_steps.step_trajectories, run_id, step):
        found[row.question_index].trajectories.append(row)
    for chosen in ask(selections.list_selections, run_id, step):
        found[chosen.question_index].selection = chosen
    for candidate in ask(buffer.candidates, run_id, step):
        found[candidate.question_index].candidates.append(candidate)
    for name, some in (("facts", facts), ("then", then)):
        for fact in some:
            if fact.question_index is not None:
                getattr(found[fact.question_index], name).append(fact)
    asked = ask(recorded_steps.questions_of, run_id, sorted(found))
    for index, group in found.items():
        group.question_index, group.question = index, asked.get(index)
    return [found[index] for index in sorted(found)]


def show(run_id: str, step: int, groups: Sequence[Group], buckets: Mapping[int, BucketRow]) -> None:
    """Show one row for each group; a click puts its question into the address, which opens it."""
    wanted = st.query_params.get("question")
    opened = next((group for group in groups if str(group.question_index) == wanted), None)
    # What no group has is left out: the bucket of a run that draws nothing, or the other setting.
    frame = table(groups, step, buckets).dropna(axis="columns", how="all")
    number = st.column_config.NumberColumn
    columns = {
        "Text": st.column_config.TextColumn(width=200),
        "Mean reward": number(format="%.3f"),
        "Mean |advantage|": number(format="%.3f", help="0 of a group without a gradient"),
        "Probability": number(format="%.1f%%", help="Of the question's bucket in a draw"),
        "Age": number(help="Steps since the replayed trajectory was generated"),
        "Entropy": number(format="%.4f", help="Of what is replayed, under the policy that replays, nats per token"),
        "Lowest other": number(format="%.4f", help="Lowest entropy of the candidates that were not chosen"),
        "Mean ratio": number(format="%.3f"),
    }
    ids = [str(group.question_index) for group in groups]
    clicks = grid.Clicks(ids, lambda question: address.put({"question": question}), wanted if opened else None)
    data_table.show_heading(f"Groups of step {step:,}", frame, f"groups-step-{step}")
    grid.draw(frame, f"groups-{step}", "Groups of the step with rewards, advantages and what was replayed", columns,
              _ROWS_IN_VIEW, clicks)  # fmt: skip
    if opened is not None:
        _show_one(run_id, step, opened, buckets)
    elif wanted:
        notice.show_empty("search_off", "Not in this step", "This step did not ask the question in the address.")


def table(groups: Sequence[Group], step: int, buckets: Mapping[int, BucketRow]) -> pd.DataFrame:
    """Return one row for each group; means are over what was recorded."""
    drawn = [buckets.get(group.selection.bucket) if group.selection else None for group in groups]
    return pd.DataFrame(
        {
            "Question": [group.question_index for group in groups],
            "Text": [_beginning(group.question) for group in groups],
            "Comparisons": [_verdict(group.facts) for group in groups],
            "Mean reward": [_mean([row.reward for row in group.trajectories]) for group in groups],
            "Mean |advantage|": [
                _mean([None if row.advantage is None else abs(row.advantage) for row in group.trajectories])
                for group in groups
            ],
            "Replayed": [
                ", ".join(_FROM_FILE if row.is_external else str(row.trajectory_id) for row in group.replayed) or None
                for group in groups
            ],
            "Age": [_age(group, step) for group in groups],
            "Bucket": [group.selection.bucket if group.selection else None for group in groups],
            "Probability": [100 * row.probability if row else None for row in drawn],
            "Candidates": [len(group.candidates) or None for group in groups],
            "Entropy": [_mean([row.mean_entropy for row in group.replayed]) for group in groups],
            "Lowest other": [_lowest(row.entropy for row in group.candidates if not row.is_chosen) for group in groups],
            "Mean ratio": [_mean([row.mean_ratio for row in group.replayed]) for group in groups],
            "With the setting": [_change(group) for group in groups],
        }
    )


def _beginning(question: Question | None) -> str | None:
    if question is None:
        return None
    text = " ".join(escape_control_characters(question.prompt_text[: 4 * _PROMPT_CHARACTERS]).split())
    return text if len(text) <= _PROMPT_CHARACTERS else f"{text[:_PROMPT_CHARACTERS]}…"


def _verdict(facts: Sequence[Fact]) -> str | None:
    num_bad = sum(fact.outcome is Outcome.DIFFERS for fact in facts)
    num_made = sum(fact.outcome in {Outcome.SAME, Outcome.DIFFERS} for fact in facts)
    return f"{num_bad} of {num_made} differ" if num_bad else f"{num_made} same" if num_made else None


def _mean(values: Sequence[float | None]) -> float | None:
    recorded = [value for value in values if value is not None]
    return known(fmean(recorded)) if recorded else None


def _age(group: Group, step: int) -> int | None:
    steps = [row.rollout_step for row in group.replayed if row.rollout_step is not None and not row.is_external]
    return age(step, max(steps)) if steps else None


def _lowest(values: Iterable[float]) -> float | None:
    return min(filter(math.isfinite, values), default=None)


def _change(group: Group) -> str | None:
    """Return what another setting does to the question: whether it is drawn, what it replays, its advantages."""
    said = {fact.compared: fact for fact in group.then if fact.outcome is Outcome.DIFFERS}
    num_advantages = sum(fact.compared == "advantage" and fact.outcome is Outcome.DIFFERS for fact in group.then)
    words = [str(said["drawn questions"].computed)] if "drawn questions" in said else []
    words += [f"replays {said['chosen trajectory'].computed}"] if "chosen trajectory" in said else []
    words += [counted(num_advantages, "other advantage")] if num_advantages else []
    return ", ".join(words) or ("same" if group.then else None)


def _show_one(run_id: str, step: int, group: Group, buckets: Mapping[int, BucketRow]) -> None:
    """Show a group: its question, why its trajectory was chosen, its trajectories and every comparison."""
    st.subheader(f"Question {group.question_index}", anchor=False)
    if group.question is not None:
        shown_text.show_long(group.question.prompt_text)
    left, right = st.columns(2, gap="small")
    with left:
        if group.selection is not None:
            rule = algorithm_settings(ask(runs.run_spec, run_id))["trajectory_selection"]
            _show_choice(group, group.selection, buckets.get(group.selection.bucket), rule)
        st.markdown("**Trajectories**")
        frame = _trajectories(group, step).dropna(axis="columns", how="all")
        ids = [str(row.trajectory_id) for row in group.trajectories]
        clicked = data_table.pick(frame, f"trajectories-{step}", "Trajectories of the group", ids)
        if clicked is not None and not group.trajectories[clicked].is_external:
            address_choice.open_trajectory(run_id, group.trajectories[clicked].trajectory_id)
    with right:
        checks = [
            (name, fact.stage, fact.compared, fact.outcome, compared(fact))
            for name, facts in (("as recorded", group.facts), ("with the setting", group.then))
            for fact in facts
        ]
        frame = pd.DataFrame(checks, columns=["Executed", "Stage", "Compared", "Result", "Values"])
        if not group.then:
            frame = frame.drop(columns=["Executed"])
        name = f"comparisons-question-{group.question_index}"
        data_table.show(frame, name, "Every comparison of the group", most=14, key="comparisons")


def _show_choice(group: Group, chosen: SelectionRow, bucket: BucketRow | None, rule: str) -> None:
    drawn = f"in bucket {chosen.bucket}"
    if bucket is not None:
        drawn += (
            f", which held {counted(bucket.num_questions, 'question')} and had the probability "
            f"{share(bucket.probability)}; {bucket.num_drawn:,} of them were drawn"
        )
    reason = reason_of(rule, group.candidates, chosen.chosen_trajectory_id)
    st.markdown(
        f"The question was {drawn}. Of {counted(len(group.candidates), 'candidate')} the method chose trajectory "
        f"{chosen.chosen_trajectory_id}{reason}."
    )
    figures.show_card(
        "Candidates", "entropy in nats per token, oldest first", chart(group.candidates), "step-candidates",
        "Bars: entropy of each candidate, the chosen one marked",
    )  # fmt: skip
    columns = dict.fromkeys(("Entropy", "NLL", "Score"), st.column_config.NumberColumn(format="%.4f"))
    name = f"candidates-question-{group.question_index}"
    data_table.show(_candidates(group.candidates), name, "Candidates", columns, key="candidates")


def reason_of(rule: str, candidates: Sequence[CandidateRow], number: int) -> str:
    """Return by which rule the method chose a candidate: with entropies if these decided, else with the rule's scores.

    Of all rules the lowest score is chosen; what has no score is left out.
    """
    is_papers = rule == LowestEntropy.name
    scores = {row.trajectory_id: row.entropy if is_papers else row.score for row in candidates}
    reason = "" if is_papers else f" by the rule {literal(rule)}"
    if not math.isfinite(scores.get(number, math.nan)):
        return reason
    name, unit, written = ("an entropy", " nats", nats) if is_papers else ("a score", "", formats.number)
    others = [scores[row.trajectory_id] for row in candidates if not row.is_chosen]
    finite = list(filter(math.isfinite, others))
    reason += f", with {name} of {written(scores[number])}{unit}"
    return f"{reason} against {written(min(finite))} or more of {counted(len(finite), 'other')}" if finite else reason


def _trajectories(group: Group, step: int) -> pd.DataFrame:
    then = {fact.trajectory_id: fact.computed for fact in group.then if fact.stage is Stage.ADVANTAGES}
    rows = group.trajectories
    return pd.DataFrame(
        {
            "Trajectory": [None if row.is_external else row.trajectory_id for row in rows],
            "Source": [_FROM_FILE if row.is_external else "replayed" if row.is_replayed else "fresh" for row in rows],
            "Age": [
                None if row.is_external or row.rollout_step is None else age(step, row.rollout_step) for row in rows
            ],
            "Verdict": [row.verdict or None for row in rows],
            "Reward": [row.reward for row in rows],
            "Advantage": [row.advantage for row in rows],
            "With the setting": [then.get(row.trajectory_id) for row in rows],
            "Tokens": [row.num_tokens for row in rows],
            "Entropy": [row.mean_entropy for row in rows],
            "Mean ratio": [row.mean_ratio for row in rows],
        }
    )


def compared(fact: Fact) -> str:
    """Return what a comparison compared, in words."""
    if fact.outcome not in {Outcome.SAME, Outcome.DIFFERS}:
        return fact.note
    if fact.recorded is None and fact.computed is None:
        return f"{counted(fact.num_compared, 'value')}, largest difference {fact.difference:.3g}"
    values = [f"{value:z.6g}" if isinstance(value, float) else value for value in (fact.recorded, fact.computed)]
    where = "" if fact.trajectory_id is None else f"trajectory {fact.trajectory_id}: "
    where += "" if fact.token is None else f"token {fact.token}, "
    return f"{where}recorded {values[0]}, computed {values[1]}"


def chart(candidates: Sequence[CandidateRow]) -> go.Figure | None:
    """Return the candidates' entropies, the chosen one in the colour of the replay buffer."""
    if not candidates:
        return None
    colours = theme.palette()
    order = [f"{row.trajectory_id}" for row in candidates]
    axis = {"type": "category", "categoryorder": "array", "categoryarray": order}
    figure = figures.new_figure(190, "trajectory", x=axis, hovermode="closest", bargap=0.4, showlegend=True)
    for is_chosen, name, colour in ((True, "chosen", colours.replay), (False, "not chosen", colours.muted)):
        bars = [row for row in candidates if row.is_chosen is is_chosen]
        names, entropies = [f"{row.trajectory_id}" for row in bars], [row.entropy for row in bars]
        trace = figures.bars(names, entropies, name, colour, f"trajectory %{{x}}: %{{y:{NATS_HOVER}}}")
        figure.add_trace(trace.update(width=0.5 if len(candidates) > 3 else 0.2))
    return figure


def _candidates(rows: Sequence[CandidateRow]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "Trajectory": [row.trajectory_id for row in rows],
            "Generated in step": [row.rollout_step for row in rows],
            "Tokens": [row.num_tokens for row in rows],
            "Entropy": [row.entropy for row in rows],
            "NLL": [row.nll for row in rows],
            "Score": [row.score for row in rows],
            "Chosen": ["chosen" if row.is_chosen else "" for row in rows],
        }
    )
