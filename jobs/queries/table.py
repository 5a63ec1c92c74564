"""The queries by name: functions that return the rows that a page shows."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from exgrpo.db.connections.session import Database
from exgrpo.db.queries import buffer, cases, judging, metrics, runs, selections
from exgrpo.db.queries.benchmarks import compare_scores, list_scores
from exgrpo.db.queries.code_analysis import rule_counts
from exgrpo.db.queries.lineage import get_question, lineage, most_replayed
from exgrpo.db.queries.replay_concentration import replay_concentration
from exgrpo.db.queries.retirement import retired_questions
from exgrpo.db.queries.run_filter import RunFilter
from exgrpo.db.queries.run_values import UNDERSTOOD
from exgrpo.db.queries.trajectories import get_trajectory, list_marks, marked_trajectories, messages_of
from exgrpo.db.queries.trajectory_list import list_questions, list_snippets
from exgrpo.db.rows.judging import JudgedRow, VerdictFilter
from exgrpo.db.rows.runs import MetricPoint, RunRow
from exgrpo.db.rows.scores import ComparisonRow, ScoredRuns
from exgrpo.db.rows.trajectories import QuestionCountRow, TrajectoryFacets, TrajectoryRow
from exgrpo.jobs.actions.replay.facts import ReplayRow
from exgrpo.jobs.actions.replay.loss import replay_step
from exgrpo.jobs.actions.studies.definition import load_study, study_names
from exgrpo.jobs.actions.studies.measures import AVERAGES
from exgrpo.jobs.actions.studies.numbers import number_rows
from exgrpo.jobs.evaluation.analysis.report import RuleTable, analyse_run, find_calibration, tabulate_counts
from exgrpo.jobs.evaluation.analysis.score_curves import read_score_curves
from exgrpo.jobs.evaluation.protocols import load_protocols, load_user_benchmarks, protocol_of
from exgrpo.jobs.queries.calls import Limit, Number
from exgrpo.jobs.runs.directory import CommandError
from exgrpo.jobs.runs.journal import Journal
from exgrpo.jobs.runs.lookup import NotFoundError, find_run_id
from exgrpo.jobs.specs.train import load_preset, preset_description, preset_group, preset_names
from exgrpo.jobs.tasks.grading.answer_grader import Scheme

logger = logging.getLogger(__name__)

Step = Annotated[int | None, Field(ge=0, le=2**62, description="The step. Default: the newest.")]
OnlyCorrect = Annotated[bool, Field(description="Count only correct responses.")]
Scored = Annotated[Scheme, Field(description="Rules of published scores (paper) or of rewards (training).")]


def _step(database: Database, run_id: str, step: int | None) -> int:
    """Return the asked step, by default the newest."""
    row = runs.get_run(database, run_id)
    newest = row.step if row else 0
    if step is not None and step > newest:
        raise CommandError(f"step: {run_id} has {newest} steps, got {step}.")
    return newest if step is None else step


def list_runs(
    database: Database,
    words: Annotated[str, Field(description=f"A search: {UNDERSTOOD}.")] = "",
    limit: Limit = 50,
) -> list[RunRow]:
    """Runs of every kind, newest first."""
    return runs.list_runs(database, RunFilter(words), limit=limit)


def one_run(database: Database, run_id: str) -> dict[str, object]:
    """One run: state, settings and the newest value of each metric."""
    return {
        "run": runs.get_run(database, run_id),
        "spec": runs.run_spec(database, run_id),
        "metrics": metrics.last_metrics(database, run_id),
    }


def buffer_after(database: Database, run_id: str, step: Step = None) -> dict[str, object]:
    """The replay buffer after a step: buckets, retired questions, draws, and ages of trajectories."""
    at = _step(database, run_id, step)
    state = buffer.state_at(database, run_id, at)
    stored = buffer.stored_trajectories(database, run_id, at)
    return {
        "step": at,
        "buckets": state.buckets,
        "retired": sorted(state.retired),
        "draws": buffer.buckets_at(database, run_id, at),
        "trajectories_by_rollout_step": dict(sorted(Counter(row.rollout_step for row in stored).items())),
        "trajectories_by_replays": dict(sorted(Counter(row.num_replays for row in stored).items())),
    }


def _replay_step(database: Database, run_id: str, step: int | None) -> int:
    steps = selections.steps_with_selections(database, run_id)
    if not steps or (step is not None and step not in steps):
        replayed = f"steps {steps[0]} to {steps[-1]} did" if steps else "none did"
        raise CommandError(f"step: expected a step of {run_id} that replayed; {replayed}.")
    return steps[-1] if step is None else step


def selected(database: Database, run_id: str, step: Step = None) -> Sequence[object]:
    """The questions that a step drew for replay, each with the trajectory that was chosen."""
    return selections.list_selections(database, run_id, _replay_step(database, run_id, step))


def scored_candidates(database: Database, run_id: str, step: Step = None) -> Sequence[object]:
    """The stored trajectories that a step could replay, with their scores."""
    return buffer.candidates(database, run_id, _replay_step(database, run_id, step))


def replay(
    database: Database,
    runs_root: Path,
    run_id: str,
    step: Step = None,
    settings: Annotated[list[str] | None, Field(description="Change a setting, as FIELD=VALUE. Repeatable.")] = None,
    method: Annotated[
        str | None, Field(description="Compare with this replay method or the algorithm of this preset.")
    ] = None,
) -> list[ReplayRow]:
    """A step executed again from what was recorded: what was compared in each stage, and the first difference."""
    return replay_step(database, runs_root, run_id, _step(database, run_id, step), settings or (), method)


def retired(database: Database, run_id: str) -> list[dict[str, str]]:
    """Retired questions with their answers. With --lines they are a benchmark for `exgrpo eval`."""
    return [{"problem": problem, "answer": answer} for problem, answer in retired_questions(database, run_id)]


def trajectories(  # noqa: PLR0913, PLR0917 - the options of the command
    database: Database,
    run_id: str,
    words: Annotated[str, Field(description="Words to search for. After role:tool, in the answers of tools.")] = "",
    question: Annotated[int | None, Field(ge=0, le=2**62, description="Only responses to this question.")] = None,
    step: Annotated[int | None, Field(ge=0, le=2**62, description="Only responses of this step.")] = None,
    correct: Annotated[bool | None, Field(description="Only correct or only wrong responses.")] = None,
    replayed: Annotated[bool | None, Field(description="Only replayed or only never replayed responses.")] = None,
    tool: Annotated[str | None, Field(description="Only responses that use this tool.")] = None,
    errors: Annotated[bool | None, Field(description="Only with a failed tool call, or only without one.")] = None,
    whole: Annotated[bool, Field(description="Show whole texts instead of their beginnings.")] = False,
    limit: Limit = 50,
) -> list[TrajectoryRow]:
    """Trajectories, newest first."""
    facets = TrajectoryFacets(
        run_id=run_id,
        words=words,
        step_from=step,
        step_to=step,
        question_index=question,
        is_correct=correct,
        is_replayed=replayed,
        tool=tool,
        has_tool_errors=errors,
    )
    return list_snippets(database, facets, limit=limit, is_whole=whole)


def question_counts(
    database: Database,
    run_id: str,
    unsolved: Annotated[bool, Field(description="Only questions that no response of the run has solved.")] = False,
    limit: Limit = 50,
) -> list[QuestionCountRow]:
    """Questions with their numbers of responses, of correct ones and of replays, most replayed first."""
    return list_questions(database, TrajectoryFacets(run_id=run_id), is_unsolved=unsolved, limit=limit)


def trajectory(database: Database, run_id: str, trajectory_id: Number) -> dict[str, object]:
    """One trajectory with its question and lineage: generation, bucket moves, replays, retirement."""
    row = get_trajectory(database, run_id, trajectory_id)
    if row is None:
        raise NotFoundError(
            f"{run_id}: has no trajectory {trajectory_id}; `exgrpo query trajectories {run_id}` lists them."
        )
    return {
        "trajectory": {name: value for name, value in asdict(row).items() if name != "messages"},
        "question": get_question(database, run_id, row.question_index),
        "messages": messages_of(database, run_id, trajectory_id),
        "lineage": lineage(database, run_id, trajectory_id, row.question_index, row.step),
    }


def curves(
    database: Database,
    run_id: str,
    metric: Annotated[list[str] | None, Field(description="Name of a metric. Repeatable. Default: all.")] = None,
    points: Annotated[int | None, Field(ge=4, le=10**6, description="About this many points of a curve.")] = None,
) -> dict[str, list[MetricPoint]]:
    """The curve of each metric: its value at every step."""
    recorded = sorted(metrics.last_metrics(database, run_id))
    unknown = [key for key in metric or () if key not in recorded]
    if unknown:
        raise CommandError(f"metric: {run_id} has recorded no {unknown[0]!r}; it has: {', '.join(recorded)}.")
    return metrics.metric_series(database, run_id, tuple(metric or recorded), points)


def judges(database: Database, runs_root: Path, run: str | None = None) -> list[dict[str, object]]:
    """Judge runs with votes, cost, calibration, and agreement with the oracle and with users."""
    run_id = None if run is None else find_run_id(runs_root, run)
    return [
        asdict(job)
        | {
            "agreement": judging.agreement(database, run_id, job.judge_run_id) if run_id else [],
            "calibration": find_calibration(database, job.judge, job.prompt),
        }
        for job in judging.list_judges(database, run_id)
    ]


def verdicts(
    database: Database,
    run_id: str,
    judge_run_id: str | None = None,
    which: Annotated[VerdictFilter, Field(description="disputed: verdicts contradict each other.")] = VerdictFilter.ALL,
    limit: Limit = 50,
) -> list[JudgedRow]:
    """Trajectories with a correct answer, with the verdicts of judge, oracle and users, newest first."""
    return judging.list_verdicts(database, run_id, judge_run_id, which, limit=limit)


def code(database: Database, run_id: str, only_correct: OnlyCorrect = False) -> RuleTable:
    """How many trajectories match each of the paper's rules that detect code."""
    return tabulate_counts(rule_counts(database, run_id), only_correct=only_correct)


def marked(database: Database, mark: Annotated[str, Field(description="Name of the mark.")]) -> list[dict[str, object]]:
    """The trajectories with a mark."""
    rows = map(asdict, marked_trajectories(database, mark))
    return [row.pop("marked") | row for row in rows]


def scores(database: Database, scheme: Scored = Scheme.PAPER) -> Sequence[object]:
    """Scores of benchmarks, newest evaluation first."""
    return list_scores(database, scheme=scheme)


def score_curves(
    database: Database, runs_root: Path, run_id: str, scheme: Scored = Scheme.PAPER
) -> dict[str, Sequence[object]]:
    """Scores of one evaluation by the number of answers k: Pass@k, majority of k, best of k."""
    scored = _scored_runs(database, runs_root, run_id, scheme)
    return {name: read_score_curves(runs_root / evaluation, name, scheme) for name, evaluation in scored}


def score_comparison(
    database: Database,
    runs_root: Path,
    first: Annotated[str, Field(description="An evaluation. Separate the evaluations of several seeds by commas.")],
    second: Annotated[str, Field(description="The evaluation to compare with the first one, written in the same way.")],
    scheme: Scored = Scheme.PAPER,
) -> list[ComparisonRow]:
    """The scores of the second evaluation minus those of the first, on their common questions, with intervals."""
    both = [
        tuple(scored for name in names.split(",") for scored in _scored_runs(database, runs_root, name, scheme))
        for names in (first, second)
    ]
    rows = compare_scores(database, both[0], both[1], scheme, tuple(AVERAGES.items()))
    if not rows:
        raise CommandError(f"{first} and {second} share no benchmark questions, so they cannot be compared.")
    return rows


def _scored_runs(database: Database, runs_root: Path, name: str, scheme: str) -> ScoredRuns:
    rows = list_scores(database, run_id=find_run_id(runs_root, name), scheme=scheme)
    if not rows:
        raise CommandError(f"{name}: expected an evaluation with scores, has none; `exgrpo eval` adds some.")
    return tuple((row.benchmark, row.run_id) for row in rows)


def journal(runs_root: Path, limit: Limit = 50) -> Sequence[object]:
    """What users asked for, newest first."""
    return [*Journal(runs_root).entries()][::-1][:limit]


def studies() -> list[dict[str, object]]:
    """The studies: the paper's tables, with their cells at each scale."""
    return [
        {
            "name": study.name,
            "title": study.title,
            "question": study.question,
            "measure": study.measure,
            "baseline": study.baseline,
            "seeds": study.num_seeds,
            "tables": [table.name for table in study.tables],
            "cells": {scale.value: [cell.name for cell in study.cells_at(scale)] for scale in study.scales},
        }
        for study in map(load_study, study_names())
    ]


def study_numbers(name: Annotated[str, Field(description="A study of `exgrpo query studies`.")]) -> Sequence[object]:
    """Every number that the paper prints for a study. A note says where the paper contradicts itself."""
    return number_rows(load_study(name))


def presets(
    preset: Annotated[str | None, Field(description="Show only this preset, with all its fields.")] = None,
) -> list[dict[str, Any]]:
    """The presets with their engines, by group: built-in task, your data, the paper."""
    loaded = {name: load_preset(name) for name in (preset_names() if preset is None else [preset])}
    return [
        {
            "preset": name,
            "group": preset_group(name),
            "engine": spec.engine,
            "description": preset_description(name),
            **({} if preset is None else {"spec": spec.model_dump(mode="json")}),
        }
        for name, spec in loaded.items()
    ]


def benchmarks(runs_root: Path) -> list[dict[str, object]]:
    """The benchmarks that `exgrpo eval` knows: the paper's, and your own in the workbench's folder."""
    declared = load_user_benchmarks(runs_root)
    for fault in declared.faults:
        logger.warning("Left out: %s", fault)
    sources = {name: choice.source for name, choice in declared.choices.items()}
    protocols = (*load_protocols().values(), *map(protocol_of, declared.choices.values()))
    return [
        asdict(protocol) | {"source": sources.get(protocol.name) or (protocol.hub and protocol.hub.name)}
        for protocol in protocols
    ]


QUERIES: dict[str, Callable[..., object]] = {
    "runs": list_runs,
    "run": one_run,
    "attempts": runs.list_attempts,
    "checkpoints": runs.list_checkpoints,
    "evaluations": metrics.list_evaluations,
    "curves": curves,
    "rewards": metrics.reward_counts,
    "buffer": buffer_after,
    "concentration": replay_concentration,
    "selections": selected,
    "candidates": scored_candidates,
    "replay": replay,
    "wrong-choices": selections.wrong_choices,
    "retired": retired,
    "trajectories": trajectories,
    "trajectory": trajectory,
    "most-replayed": most_replayed,
    "question-counts": question_counts,
    "marks": list_marks,
    "marked": marked,
    "judges": judges,
    "verdicts": verdicts,
    "case-sets": cases.list_case_sets,
    "analysis": analyse_run,
    "code": code,
    "scores": scores,
    "score-curves": score_curves,
    "score-comparison": score_comparison,
    "benchmarks": benchmarks,
    "studies": studies,
    "study-numbers": study_numbers,
    "presets": presets,
    "journal": journal,
}
"""Parameters named `database` and `runs_root` are given, all others are the caller's."""
