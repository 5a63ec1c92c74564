"""Trajectories by search and facets."""

from app.queries.answers import ask, ask_pages
from db.queries import trajectory_list
from db.rows.trajectories import SnippetRow, TrajectoryFacets

TRAJECTORIES_PAGE_SIZE = 50


def list_snippets(facets: TrajectoryFacets, num_pages: int = 1) -> list[SnippetRow]:
    """Return the first pages of matching trajectories, newest first."""
    return ask_pages(
        lambda last: ask(
            trajectory_list.list_snippets,
            facets,
            before=last.trajectory_key if last else None,
            limit=TRAJECTORIES_PAGE_SIZE,
        ),
        TRAJECTORIES_PAGE_SIZE,
        num_pages,
    )
