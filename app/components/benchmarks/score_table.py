"""Scores in the layout of the paper's tables: measured and printed lines, ranked, marked where not comparable."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from exgrpo.app.formats import counted
from exgrpo.db.rows.display_names import distinct_names, model_name
from exgrpo.db.rows.scores import BenchmarkScoreRow, ScoredRuns
from exgrpo.jobs.actions.studies.definition import PaperTable, load_study, number_of, study_names
from exgrpo.jobs.actions.studies.measures import AVERAGES, BENCHMARK_COLUMNS
from exgrpo.jobs.actions.studies.numbers import disagreements
from exgrpo.jobs.evaluation.protocols import load_protocols

BLOCKS = {
    name: (*(BENCHMARK_COLUMNS[benchmark] for benchmark in benchmarks), name) for name, benchmarks in AVERAGES.items()
}
"""Columns of each average, which ends its block."""
COLUMNS = tuple(column for block in BLOCKS.values() for column in block)
"""Columns as the paper's main table has them."""
OTHER_MODELS = "Other models"
_PROTOCOL_SAMPLING = {"temperature": 0.6, "top_p": 1.0, "max_response_tokens": 8192}
_SETTING_PARTS = ("template", "grader_version", *_PROTOCOL_SAMPLING)
Target = tuple[str, str | None, int | None]
"""What was scored: a model, the run it is a checkpoint of, and its step there."""
Setting = tuple[object, ...]
"""The values of `_SETTING_PARTS`."""
_PART_NAMES = {
    "data_hash": "questions",
    "template": "template",
    "grader_version": "grader",
    "samples_per_question": "samples per question",
    "temperature": "temperature",
    "top_p": "top-p",
    "max_response_tokens": "longest answer",
}


@dataclass(frozen=True, slots=True)
class Score:
    """One cell, in percent; `rank` is 1 for the best of its column, 2 for the second best."""

    value: float
    interval: tuple[float, float] | None = None
    """Ends of the 95% interval over questions; the paper prints none."""
    rank: int = 0
    protocol: str = ""
    """How its measurement differs from the paper's protocol, in words; such a score gets no rank."""
    differing: str = ""
    """How it differs from the newest of the user's scores in its column, by protocol if there is one, in words."""
    note: str = ""
    """What is wrong with a printed number."""

    @property
    def text(self) -> str:
        """The value as the paper prints it."""
        return f"{self.value:.1f}"


@dataclass(frozen=True, slots=True)
class ScoreLine:
    """One line of the table: a scored model, or a row that the paper prints."""

    key: str
    group: str
    name: str
    scores: Mapping[str, Score]
    is_printed: bool = False
    scored: ScoredRuns = ()
    evaluations: tuple[str, ...] = ()
    """Ids of the evaluations behind it, newest first."""
    source_run_id: str | None = None
    model: str = ""
    """Hub name of a printed row's model, where it has one."""
    template: str = ""
    """Prompt template by which that model is scored."""


def measured_lines(rows: Sequence[BenchmarkScoreRow]) -> list[ScoreLine]:
    """Return one line per model and setting, newest first within its backbone, each with a name and key of its own.

    For each benchmark the newest score by the paper's protocol counts, else the newest. A setting is a comparability
    key without the data and the number of samples, which differ between benchmarks.
    """
    by_target: dict[Target, dict[Setting, list[BenchmarkScoreRow]]] = {}
    for row in rows:
        setting = tuple(row.comparability.get(part) for part in _SETTING_PARTS)
        target = (row.model, row.source_run_id, row.source_step)
        by_target.setdefault(target, {}).setdefault(setting, []).append(row)
    newest: dict[str, BenchmarkScoreRow] = {}
    for row in sorted(rows, key=lambda row: bool(_off_protocol(row))):
        newest.setdefault(row.benchmark, row)
    names = scored_names(rows)
    lines: dict[str, ScoreLine] = {}
    num_lines: Counter[str] = Counter()
    for settings in by_target.values():
        for setting, members in settings.items():
            evaluation = members[0].run_id
            # One evaluation may score its benchmarks by several settings.
            key = f"{evaluation}:{num_lines[evaluation]}" if num_lines[evaluation] else evaluation
            num_lines[evaluation] += 1
            name = line_name(members[0], names) + _setting_suffix(setting, settings)
            lines[key] = _measured_line(members, newest, key, name)
    distinct = distinct_names((key, line.name) for key, line in lines.items())
    order = list(dict.fromkeys(line.group for line in lines.values()))
    named = (replace(line, name=distinct[key]) for key, line in lines.items())
    return sorted(named, key=lambda line: order.index(line.group))


def column_of(benchmark: str) -> str:
    """Return the column of a benchmark: the paper's, or for a user's its name."""
    return BENCHMARK_COLUMNS.get(benchmark, benchmark)


def user_columns(rows: Iterable[BenchmarkScoreRow]) -> dict[str, str]:
    """Return the titles of the users' benchmarks by column, by name; of several titles the newest counts."""
    titles: dict[str, str] = {}
    for row in rows:
        if row.benchmark not in BENCHMARK_COLUMNS:
            titles.setdefault(row.benchmark, row.title)
    return dict(sorted(titles.items()))


def printed_tables() -> dict[str, str]:
    """Return the title of each study whose table has columns of the benchmarks."""
    return {name: load_study(name).title for name in study_names() if any(map(_columns_of, load_study(name).tables))}


def printed_lines(studies: Iterable[str]) -> list[ScoreLine]:
    """Return the rows that the paper prints in the tables of studies; a row of several tables is returned once."""
    printed: dict[tuple[object, ...], ScoreLine] = {}
    for name in studies:
        study = load_study(name)
        notes = {fault.place: fault for fault in disagreements(study)}
        for table in study.tables:
            columns = _columns_of(table)
            for row in table.rows if columns else ():
                values = dict(zip(table.columns, row.values, strict=True))
                scores = {}
                for column, printed_column in columns.items():
                    value = number_of(values[printed_column])
                    fault = notes.get((table.name, row.group, row.row, printed_column))
                    if value is not None:
                        scores[column] = Score(value, note="" if fault is None else fault.sentence)
                identity = (row.row, tuple(sorted((column, score.value) for column, score in scores.items())))
                key = f"{name}:{row.group}:{row.row}"
                line = ScoreLine(
                    key, row.group or study.title, row.row, scores, is_printed=True, model=row.model,
                    template=row.template,
                )  # fmt: skip
                printed.setdefault(identity, line)
    return list(printed.values())


def rank(lines: Sequence[ScoreLine], columns: Iterable[str] = COLUMNS) -> list[ScoreLine]:
    """Rank the best and the second best of each column, as printed; scores off the protocol are not ranked."""
    ranks: dict[tuple[str, str], int] = {}
    for column in columns:
        values = {score.text for line in lines if (score := line.scores.get(column)) is not None and not score.protocol}
        for position, text in enumerate(sorted(values, key=float, reverse=True)[:2], start=1):
            ranks[column, text] = position
    return [
        replace(
            line,
            scores={
                column: score if score.protocol else replace(score, rank=ranks.get((column, score.text), 0))
                for column, score in line.scores.items()
            },
        )
        for line in lines
    ]


def remarks(lines: Sequence[ScoreLine], of: Callable[[Score], str]) -> list[str]:
    """Return the texts that `of` gives for scores, one sentence per line and text."""
    columns_of_remark: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        for column, score in line.scores.items():
            if of(score):
                columns_of_remark.setdefault((f"{line.group}, {line.name}", of(score)), []).append(column)
    return [f"{name}, {', '.join(columns)}: {text}" for (name, text), columns in columns_of_remark.items()]


def with_columns(lines: Iterable[ScoreLine], columns: Collection[str]) -> list[ScoreLine]:
    """Return the lines that have a score in one of the columns, without their other scores."""
    kept = (
        replace(line, scores={column: score for column, score in line.scores.items() if column in columns})
        for line in lines
    )
    return [line for line in kept if line.scores]


def part_names(parts: Iterable[str]) -> str:
    """Return the names of the parts of a comparability key."""
    return ", ".join(_PART_NAMES.get(part, part) for part in parts)


def _setting_suffix(setting: Setting, settings: Iterable[Setting]) -> str:
    """Return how a setting differs from the others of the same model, nothing where it is the only one."""
    values = zip(_SETTING_PARTS, setting, zip(*settings, strict=True), strict=True)
    parts = [f"{_PART_NAMES[part]} {value}" for part, value, all_values in values if len({*all_values}) > 1]
    return f" ({', '.join(parts)})" if parts else ""


def _measured_line(
    rows: Sequence[BenchmarkScoreRow], newest: Mapping[str, BenchmarkScoreRow], key: str, name: str
) -> ScoreLine:
    counted: dict[str, BenchmarkScoreRow] = {}
    for row in sorted(rows, key=lambda row: bool(_off_protocol(row))):
        counted.setdefault(row.benchmark, row)
    scores = {column_of(name): _score(row, newest[name]) for name, row in counted.items()}
    for average, benchmarks in AVERAGES.items():
        parts = [scores.get(BENCHMARK_COLUMNS[name]) for name in benchmarks]
        whole = [part for part in parts if part is not None]
        if len(whole) == len(parts):
            scores[average] = _mean(whole)
    first = rows[0]
    return ScoreLine(
        key=key, group=first.backbone if first.source_run_id else OTHER_MODELS, name=name, scores=scores,
        scored=tuple((name, row.run_id) for name, row in counted.items()),
        evaluations=tuple(dict.fromkeys(row.run_id for row in rows)), source_run_id=first.source_run_id,
    )  # fmt: skip


def _score(row: BenchmarkScoreRow, newest: BenchmarkScoreRow) -> Score:
    parts = sorted({*row.comparability, *newest.comparability})
    differing = [part for part in parts if row.comparability.get(part) != newest.comparability.get(part)]
    low, high = row.interval
    interval = None if math.isnan(low) else (100.0 * low, 100.0 * high)
    return Score(100.0 * row.score, interval, protocol=_off_protocol(row), differing=part_names(differing))


def _off_protocol(row: BenchmarkScoreRow) -> str:
    protocol = load_protocols().get(row.benchmark)
    if protocol is None:
        return ""
    deviations = []
    if row.num_questions != protocol.num_questions:
        deviations.append(f"{row.num_questions:,} of {protocol.num_questions:,} questions")
    if row.samples_per_question != protocol.samples_per_question:
        deviations.append(f"{row.samples_per_question} instead of {counted(protocol.samples_per_question, 'sample')}")
    for part, wanted in _PROTOCOL_SAMPLING.items():
        value = row.comparability.get(part, wanted)
        if value != wanted:
            deviations.append(f"{_PART_NAMES[part]} {value} instead of {wanted}")
    return ", ".join(deviations)


def _mean(scores: Sequence[Score]) -> Score:
    """Return the mean of benchmarks, whose errors are independent of each other."""
    mean = sum(score.value for score in scores) / len(scores)
    ends = [(score.value - score.interval[0], score.interval[1] - score.value) for score in scores if score.interval]
    below, above = (math.hypot(*reaches) / len(scores) for reaches in zip(*ends or [(0.0, 0.0)], strict=True))
    return Score(
        mean,
        (mean - below, mean + above) if len(ends) == len(scores) else None,
        protocol="of scores that are off the protocol" if any(score.protocol for score in scores) else "",
        differing="of scores that differ" if any(score.differing for score in scores) else "",
    )


def scored_names(rows: Iterable[BenchmarkScoreRow]) -> dict[str, str]:
    """Return the name of each scored run by its id, and of each other model by its source.

    Runs of one name have a part of their id too; folders of one name are named by their whole path.
    """
    trained = {row.source_run_id: row.source_name or row.source_run_id for row in rows if row.source_run_id}
    others = {row.model: model_name(row.model) for row in rows if row.source_run_id is None}
    counts = Counter(others.values())
    return distinct_names(trained.items()) | {
        model: name if counts[name] == 1 else model for model, name in others.items()
    }


def line_name(row: BenchmarkScoreRow, names: Mapping[str, str]) -> str:
    """Return what was scored, of its `scored_names`: a model, or the method, name and step of the run it is of."""
    if row.source_run_id is None:
        return names[row.model]
    return f"{row.method}: {names[row.source_run_id]}, step {row.source_step or 0:,}{row.choice}".lstrip(": ")


def _columns_of(table: PaperTable) -> dict[str, str]:
    """Return the printed column of each column that a table has; averages are recognised by their parts."""
    averages = {BLOCKS[name][:-1]: name for name in BLOCKS}
    named = {column: column for column in table.columns if column in BENCHMARK_COLUMNS.values()}
    return named | {averages[parts]: column for column, parts in table.averages.items() if parts in averages}
