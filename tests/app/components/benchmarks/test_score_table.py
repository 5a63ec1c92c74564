from dataclasses import replace
from datetime import UTC, datetime

import pytest

from exgrpo.app.components.benchmarks.score_table import COLUMNS, Score, ScoreLine, measured_lines, rank
from exgrpo.app.components.benchmarks.score_table_view import as_latex, as_markdown, as_rows
from exgrpo.db.rows.scores import BenchmarkScoreRow
from exgrpo.db.statistics import score_interval
from exgrpo.jobs.actions.studies.definition import load_study
from exgrpo.jobs.evaluation.protocols import load_protocols

pytestmark = pytest.mark.slow

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def row(benchmark, score, **changes):
    protocol = load_protocols()[benchmark]
    parts = {"data_hash": benchmark, "template": "paper", "grader_version": "g", "temperature": 0.6, "top_p": 1.0}
    fields = {
        "run_id": "eval-1", "run_name": "e", "benchmark": benchmark, "title": protocol.title, "scheme": "paper",
        "score": score, "standard_error": 0.03, "num_questions": protocol.num_questions,
        "samples_per_question": protocol.samples_per_question, "outcomes": {}, "comparability_key": "k",
        "comparability": parts | {"max_response_tokens": 8192, "samples_per_question": protocol.samples_per_question},
        "model": "policy", "source_run_id": "run-1", "source_step": 10, "source_name": "mine", "method": "ExGRPO",
        "backbone": "base", "mean_tokens": 9.0, "truncated_share": 0.0, "at": NOW,
    }  # fmt: skip
    return BenchmarkScoreRow(**fields | changes)


def line(name, **scores):
    return ScoreLine(name, "g", name, {column: Score(value) for column, value in scores.items()})


def test_evaluations_of_one_checkpoint_make_one_line_and_the_newest_score_counts():
    rows = [row("aime24", 0.5, run_id="new"), row("aime24", 0.1, run_id="old"), row("amc", 0.3, run_id="old")]
    (line,) = measured_lines(rows)
    assert {column: score.value for column, score in line.scores.items()} == {"AIME24": 50.0, "AMC": 30.0}
    assert line.scored == (("aime24", "new"), ("amc", "old"))
    assert (line.group, line.name, line.evaluations) == ("base", "ExGRPO: mine, step 10", ("new", "old"))
    # A newer score of a slice does not hide that of the whole.
    (line,) = measured_lines([row("aime24", 0.9, run_id="slice", num_questions=3), row("aime24", 0.1, run_id="whole")])
    assert line.scored == (("aime24", "whole"),)
    assert line.scores["AIME24"].protocol == ""


def test_other_settings_and_steps_are_lines_of_their_own():
    other = row("aime24", 0.1).comparability | {"temperature": 1.0}
    rows = [row("aime24", 0.5), row("aime24", 0.2, comparability=other), row("aime24", 0.3, source_step=20)]
    name = "ExGRPO: mine, step"
    expected = [f"{name} 10 (temperature 0.6)", f"{name} 10 (temperature 1.0)", f"{name} 20"]
    assert [line.name for line in measured_lines(rows)] == expected


def test_scores_differ_from_the_newest_by_the_protocol_not_from_a_newer_slice():
    slice_ = {"num_questions": 3, "comparability": row("aime24", 0.9).comparability | {"data_hash": "three of them"}}
    other = row("aime24", 0.9, run_id="slice", source_run_id="run-2", source_name="other", **slice_)
    found = [line.scores["AIME24"].differing for line in measured_lines([other, row("aime24", 0.1)])]
    assert found == ["questions", ""]


def test_models_of_one_name_are_lines_with_names_and_keys_of_their_own():
    half = {"source_run_id": "20260101-000000-9f9f9f", "run_id": "eval-half"}
    rows = [
        row("amc", 1.0), row("amc", 0.9, **half), row("amc", 0.8, run_id="eval-3", source_run_id="r", source_name="b"),
    ]  # fmt: skip
    lines = measured_lines(rows)
    assert [line.name for line in lines] == [f"ExGRPO: {name}, step 10" for name in ("mine (1)", "mine (9f9f9f)", "b")]
    assert [line.scores["AMC"].value for line in lines] == [100.0, 90.0, 80.0]
    folders = [row("amc", 0.5, run_id=f"eval{path}", source_run_id=None, model=path) for path in ("/a/last", "/b/last")]
    assert [line.name for line in measured_lines([*folders, *rows])][:2] == ["/a/last", "/b/last"]


def test_one_evaluation_by_two_settings_is_two_lines_with_keys_of_their_own():
    plain = row("amc", 0.1).comparability | {"template": "none"}
    lines = measured_lines([row("aime24", 0.5), row("amc", 0.2, comparability=plain)])
    assert [(line.key, line.scored) for line in lines] == [
        ("eval-1", (("aime24", "eval-1"),)), ("eval-1:1", (("amc", "eval-1"),)),
    ]  # fmt: skip


def test_average_needs_all_of_its_benchmarks_and_carries_their_error():
    rows = [row(name, 0.3, standard_error=0.06) for name in ("arc_c", "gpqa_diamond", "mmlu_pro")]
    assert "OOD Avg." not in measured_lines(rows[:2])[0].scores
    average = measured_lines(rows)[0].scores["OOD Avg."]
    assert average.value == pytest.approx(30.0)
    ends = [score_interval(0.3, 0.06, item.num_questions) for item in rows]
    reaches = [sum((end[side] - 0.3) ** 2 for end in ends) ** 0.5 / 3 for side in (0, 1)]
    assert average.interval == pytest.approx((30 - 100 * reaches[0], 30 + 100 * reaches[1]))


def test_no_score_nor_average_reaches_below_0_or_above_100_and_one_question_has_no_interval():
    names = ("arc_c", "gpqa_diamond", "mmlu_pro")
    for share in (0.0, 1.0):
        [line] = measured_lines([row(name, share, standard_error=0.0, num_questions=20) for name in names])
        # By hand: (20 + 2) / 24 less 1.96 sqrt(22 / 24 * 2 / 24 / 24) is 80.6 of 100, of three alike 19.4 / sqrt(3).
        far = {name: abs(100 * share - near) for name, near in (("ARC-c", 19.4), ("OOD Avg.", 11.2))}
        for name, end in far.items():
            assert sorted(line.scores[name].interval) == pytest.approx(sorted([100 * share, end]), abs=0.05)
    [line] = measured_lines([row(name, 1.0, standard_error=float("nan"), num_questions=1) for name in names])
    assert {score.interval for score in line.scores.values()} == {None}


def test_score_off_the_protocol_says_how_and_takes_no_rank():
    rows = [row("aime24", 0.9, num_questions=3, samples_per_question=4, source_run_id=None, model="/models/own")]
    (line,) = rank(measured_lines(rows))
    assert line.scores["AIME24"].protocol == "3 of 30 questions, 4 instead of 32 samples"
    assert (line.scores["AIME24"].rank, line.group, line.name) == (0, "Other models", "own")


def test_best_and_second_best_are_marked_and_equal_prints_share_a_mark():
    lines = rank([line("a", AMC=10.04), line("b", AMC=10.01), line("c", AMC=9.0), line("d", AMC=8.0)])
    assert [line.scores["AMC"].rank for line in lines] == [1, 1, 2, 0]


def test_exports_have_the_papers_columns_best_bold_second_underlined_and_obey_no_name():
    assert load_study("main-table").tables[0].columns == COLUMNS
    (first, *rest) = rank([line("a_b & c|", AMC=3.0), line("d", AMC=2.0), line("e", AMC=1.0)])
    with_error = replace(first, scores={"AMC": replace(first.scores["AMC"], interval=(2.56, 3.44))})
    text = as_latex([with_error, *rest])
    assert "\\multicolumn{7}{c}{In-distribution} & \\multicolumn{4}{c}{Out-of-distribution}" in text
    assert " & ".join(["AIME24", "AIME25", "AMC", "MATH-500", "Minerva", "Olympiad", "ID Avg."]) in text
    assert "a\\_b \\& c| & -- & -- & \\textbf{3.0} {\\scriptsize (2.6 to 3.4)} & --" in text
    assert "d & -- & -- & \\underline{2.0} & --" in text
    assert "| a\\_b \\& c\\| | -- | -- | **3.0** (2.6 to 3.4) | --" in as_markdown([with_error, *rest])
    assert "| <u>2.0</u> |" in as_markdown(rest)
    written = as_rows([with_error])[0]
    assert (written["AMC"], written["AIME24"], written["From"]) == (3.0, None, "own")
    assert {row.count("&") for row in text.splitlines() if " & d &" in row} == {len(COLUMNS) + 1}
