"""The static page of runs: curves, the buffer as a film, trajectories with token colours, scores, configuration."""

import re
import shutil
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from exgrpo.app import theme
from exgrpo.app.components.replay_buffer import buffer_over_steps
from exgrpo.app.components.runs import comparison
from exgrpo.app.components.trajectories import conversation_view, lineage_view, token_heatmap
from exgrpo.app.components.widgets import chart, curves, figures, shown_text
from exgrpo.app.components.widgets.curve_view import WHOLE
from exgrpo.app.components.widgets.spec_text import as_yaml
from exgrpo.app.formats import counted, escape_control_characters, exact, known, share
from exgrpo.app.queries.answers import ask_outside_pages as ask
from exgrpo.app.settings import runs_root
from exgrpo.db.queries import benchmarks, buffer, lineage, metrics, runs, trajectories
from exgrpo.db.queries.trajectory_list import list_snippets
from exgrpo.db.rows.runs import BucketRow, RunRow, UnknownRunError
from exgrpo.db.rows.spec_fields import UNKNOWN, algorithm_settings, benchmark_titles, may_replay
from exgrpo.db.rows.trajectories import TrajectoryFacets, TrajectoryRow
from exgrpo.db.statistics import interval_text
from exgrpo.jobs.actions.token_texts import token_data
from exgrpo_core.durable_files import write_whole

MAX_POINTS = 300
MAX_FRAMES = 60
NUM_TRAJECTORIES = 8
MAX_TOKENS = 2000
"""Of a longer trajectory the page has the first tokens."""
_MAX_MARKED = 100
_SECRETS = ("key", "token", "secret", "password")
"""How names of fields end whose values are not published."""
_FOLDERS = re.compile("(^|=|://)/.*/(?=.)")
_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
    lstrip_blocks=True,
)  # fmt: skip


@dataclass(frozen=True)
class Section:
    """Charts under a heading, each with its title, unit and plotly's JSON."""

    title: str
    charts: list[tuple[str, str, str]]


def write_page(folder: Path, run_ids: Sequence[str]) -> None:
    """Write `index.html` and the chart library into a folder, with all that is known of the runs.

    Raises:
        OSError: The folder cannot be written; one that was new is removed.
        UnknownRunError: There is no such run.
        UnavailableError: The database does not answer.
    """
    page = _TEMPLATES.get_template("page.jinja").render(runs=[_facts(run_id) for run_id in run_ids], icon=theme.ICON)
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for name, content in (("charts.js", _chart_library()), ("index.html", page)):
            write_whole(folder / name, content)
            (folder / name).chmod(0o644)  # what is published is for a web server to read
    except OSError:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _chart_library() -> str:
    """Return plotly as a script that unpacks itself: a page that was opened from a file may read no other files."""
    unpack = (Path(__file__).parent / "unpack.js").read_text(encoding="utf-8")
    return unpack.replace("PACKED", b64encode(chart.PLOTLY.read_bytes()).decode())


def _facts(run_id: str) -> dict[str, Any]:
    row = ask(runs.get_run, run_id)
    if row is None:
        raise UnknownRunError(f"{run_id}: the database has no such run; `exgrpo runs` lists the runs.")
    spec = ask(runs.run_spec, run_id)
    return {
        "row": row,
        "facts": _provenance(row),
        "sections": [section for section in _sections(row, spec) if section.charts],
        "scores": [
            (score.title, score.scheme, "" if score.source_step is None else f"{score.source_step:,}",
             share(score.score), interval_text(score.interval), score.num_questions, score.samples_per_question)
            for score in (
                *ask(benchmarks.list_scores, run_id=run_id),
                *ask(benchmarks.list_scores, source_run_id=run_id),
            )
        ],
        "trajectories": [
            shown for number, why in _chosen(run_id).items() if (shown := _trajectory(run_id, number, why)) is not None
        ],
        "configuration": escape_control_characters(as_yaml(publishable(spec))),
    }  # fmt: skip


def publishable(value: Any, name: str = "") -> Any:  # noqa: ANN401 - a document of JSON
    """Return a setting without what is for its user alone: secrets are left out, of absolute paths the end stays."""
    if value is not None and name.lower().endswith(_SECRETS):
        return "left out"
    if isinstance(value, dict):
        return {key: publishable(item, str(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [publishable(item) for item in value]
    return _FOLDERS.sub(r"\1", value) if isinstance(value, str) else value


def _provenance(row: RunRow) -> dict[str, str]:
    steps = f"{row.step:,} of {row.num_steps:,}"
    facts = {
        "Run": row.run_id, "Method": row.method, "Model": row.model, "Data": row.dataset, "Engine": row.engine,
        "State": row.status, "Steps": steps if row.num_steps else "", "Attempts": f"{row.attempt}",
        "Started": row.started_at and exact(row.started_at), "Ended": row.ended_at and exact(row.ended_at),
        "Continued from": (step := row.branched_from_step) is not None and f"{row.parent_run_id}, step {step:,}",
    }  # fmt: skip
    return {name: escape_control_characters(str(publishable(value))) for name, value in facts.items() if value}


def _sections(row: RunRow, spec: dict[str, Any]) -> Iterable[Section]:
    series = ask(metrics.metric_series, row.run_id, (*curves.KEYS, *buffer_over_steps.KEYS), MAX_POINTS)
    evaluations = ask(metrics.list_evaluations, row.run_id)
    scores = curves.pass_rates(series, evaluations, titles=benchmark_titles(spec))
    yield Section("Scores", _charts([(curves.PASS_RATES.title, curves.PASS_RATES.unit, scores)]))
    if may_replay(spec):
        rollouts = algorithm_settings(spec)["rollouts_per_question"]
        grid = ask(buffer.bucket_grid, row.run_id)
        film = [
            ("Buckets over steps", "questions in the bucket", buffer_over_steps.heatmap(grid, rollouts, "questions")),
            ("Film of the buffer", "questions in each bucket, step by step", film_of(grid, rollouts)),
            ("Replay buffer and retired set", "questions", buffer_over_steps.area(series)),
            (
                "Importance ratios by trajectory",
                "mean π now / π then, logarithmic",
                buffer_over_steps.bands(ask(metrics.replay_ratios, row.run_id), WHOLE),
            ),
        ]
        yield Section("The buffer over steps", _charts(film))
    own = comparison.own_charts_of(row.run_id)[: comparison.MAX_OWN] if row.is_recorded else []
    of_own = ask(metrics.metric_series, row.run_id, tuple(chart.curves[0].key for chart in own), MAX_POINTS)
    for title, charts in {"Recorded metrics": own, **curves.GROUPS}.items():
        yield Section(
            title, _charts([(chart.title, chart.unit, curves.figure_of(chart, series | of_own)) for chart in charts])
        )


def _charts(drawn: Iterable[tuple[str, str, go.Figure | None]]) -> list[tuple[str, str, str]]:
    charts = []
    for title, unit, figure in drawn:
        if figure is not None:
            figures.mark_whole_steps(figure)
            figures.use_powers_of_ten(figure)
            charts.append((title, unit, str(figure.to_json())))
    return charts


def film_of(rows: Sequence[BucketRow], rollouts_per_question: int) -> go.Figure | None:
    """Return the buckets' sizes as bars with a slider over the steps; None where no bucket ever held a question."""
    held = [row for row in rows if row.num_questions]
    if not held:
        return None
    steps = sorted({row.step for row in rows})
    steps = steps[::-1][:: -(-len(steps) // MAX_FRAMES)][::-1]
    top = max(max(row.bucket for row in held), rollouts_per_question - 1)
    sizes = {(row.step, row.bucket): row.num_questions for row in rows}
    names = [f"{bucket}/{rollouts_per_question}" for bucket in range(top + 1)]
    colour = theme.palette().replay

    def bars(step: int) -> go.Bar:
        counts = [sizes.get((step, bucket), 0) for bucket in range(top + 1)]
        return figures.bars(names, counts, "questions", colour, "%{y}")

    most = max(row.num_questions for row in held) * 1.05
    figure = figures.new_figure(x_title="", x={"type": "category"}, y={"range": [0, most]}, hovermode="closest")
    figure.add_trace(bars(steps[-1]))
    figure.frames = [go.Frame(data=[bars(step)], name=str(step)) for step in steps]
    shown = {"mode": "immediate", "frame": {"duration": 0, "redraw": False}, "transition": {"duration": 0}}
    figure.update_layout(
        sliders=[{
            "active": len(steps) - 1, "currentvalue": {"prefix": "step "}, "pad": {"t": 30},
            "steps": [{"method": "animate", "label": str(step), "args": [[str(step)], shown]} for step in steps],
        }],
    )  # fmt: skip
    return figure


def _chosen(run_id: str) -> dict[int, str]:
    """Return the numbers of the trajectories to show: marked ones, else those replayed most, else the newest."""
    marked = {
        mark.marked.trajectory_id: f"marked {name}"
        for name in dict.fromkeys(count.mark for count in ask(trajectories.list_marks))
        for mark in ask(trajectories.marked_trajectories, name, limit=_MAX_MARKED)
        if mark.marked.run_id == run_id and mark.step is not None
    }
    replayed = {
        replays.trajectory_id: f"replayed {counted(replays.num_replays, 'time')}"
        for replays in ask(lineage.most_replayed, run_id, limit=NUM_TRAJECTORIES)
    }
    chosen = marked | {number: why for number, why in replayed.items() if number not in marked}
    if not chosen:
        newest = ask(list_snippets, TrajectoryFacets(run_id=run_id), limit=NUM_TRAJECTORIES)
        chosen = {row.trajectory_id: "of the newest step" for row in newest}
    return dict(list(chosen.items())[: max(NUM_TRAJECTORIES, len(marked))])


def _trajectory(run_id: str, number: int, why: str) -> dict[str, Any] | None:
    """Return what is shown of a trajectory; None of one that the run from which this one continued generated."""
    row = ask(trajectories.get_trajectory, run_id, number)
    if row is None:
        return None
    question = ask(lineage.get_question, run_id, row.question_index)
    events = ask(lineage.lineage, run_id, number, row.question_index, row.step)
    table = lineage_view.table(row, events)
    return {
        "row": row,
        "why": why,
        "verdict": row.verdict or f"reward {UNKNOWN if known(row.reward) is None else row.reward}",
        "question": escape_control_characters(question.prompt_text) if question else "",
        "answer": escape_control_characters(question.answer) if question else "",
        "tokens": _tokens(run_id, row),
        "lineage": [list(table.columns), *table.to_numpy().tolist()],
    }


def _tokens(run_id: str, row: TrajectoryRow) -> str:
    """Return the response as HTML, coloured by entropy where its tokens were kept; a conversation turn by turn."""
    if row.num_turns is not None:
        messages = ask(trajectories.messages_of, run_id, row.trajectory_id)
        return conversation_view.html(conversation_view.first_messages(messages))
    file = ask(trajectories.find_trajectory_file, run_id, row.trajectory_id)
    recorded = token_data(runs_root(), run_id, file, row.trajectory_id, replayed_in=None) if file else None
    values = token_heatmap.from_recorded(recorded)
    if values is None or not values.entropies:
        return shown_text.html([shown_text.Part(shown_text.beginning(row.text))])
    numbers = np.asarray(values.entropies, dtype=np.float64)
    return shown_text.html(token_heatmap.parts(values, "Entropy", numbers, slice(MAX_TOKENS)))
