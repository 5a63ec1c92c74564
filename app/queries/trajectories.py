"""Trajectories by search and facets, and the life of one of them."""

from app.queries.answers import ask
from db.connections.session import Database
from db.queries import lineage, trajectories, trajectory_list
from db.rows.runs import TrajectoryRow
from db.rows.trajectories import AttemptedRow, GroupMemberRow, LineageRow, QuestionRow, SnippetRow, TrajectoryFacets

TRAJECTORIES_PAGE_SIZE = 50


def list_snippets(facets: TrajectoryFacets, num_pages: int = 1) -> list[SnippetRow]:
    """Return the first pages of the trajectories that fit, newest first."""
    found: list[SnippetRow] = []
    for _ in range(num_pages):
        page = ask(_snippet_page, facets, found[-1].trajectory_key if found else None)
        found += page
        if len(page) < TRAJECTORIES_PAGE_SIZE:
            break
    return found


def count_trajectories(facets: TrajectoryFacets) -> int:
    """Return how many trajectories fit, exact up to 10,000."""
    return ask(trajectory_list.count_trajectories, facets)


def count_facets(facets: TrajectoryFacets) -> trajectory_list.FacetCounts:
    """Return how many trajectories would fit with each value of each closed facet."""
    return ask(trajectory_list.count_facets, facets)


def get_trajectory(run_id: str, trajectory_id: int) -> TrajectoryRow | None:
    """Return one fresh trajectory, or None if there is none of this id."""
    return ask(trajectories.get_trajectory, run_id, trajectory_id)


def trajectory_file(run_id: str, trajectory_id: int) -> str | None:
    """Return the file, relative to the run's folder, that holds a fresh trajectory's tokens."""
    return ask(trajectories.find_trajectory_file, run_id, trajectory_id)


def trajectory_lineage(row: TrajectoryRow) -> list[LineageRow]:
    """Return what happened to a trajectory since it was born."""
    return ask(lineage.lineage, row.run_id, row.trajectory_id, row.question_index, row.step)


def get_question(run_id: str, question_index: int) -> QuestionRow | None:
    """Return a training question of a run."""
    return ask(lineage.get_question, run_id, question_index)


def group_members(run_id: str, step: int, question_index: int) -> list[GroupMemberRow]:
    """Return the K trajectories of a question in a step."""
    return ask(lineage.group_members, run_id, step, question_index)


def attempts_at_question(question_id: str) -> list[AttemptedRow]:
    """Return how a question fared, by run and step."""
    return ask(lineage.attempts_at_question, question_id)


def _snippet_page(database: Database, facets: TrajectoryFacets, before: int | None) -> list[SnippetRow]:
    return trajectory_list.list_snippets(database, facets, before=before, limit=TRAJECTORIES_PAGE_SIZE)
