from collections import Counter

import pytest

from exgrpo.jobs.actions.studies.definition import PaperTable, Study, load_study, number_of, study_names
from exgrpo.jobs.actions.studies.numbers import disagreements, number_rows, setting_gains
from tests.jobs.actions.studies.paper_source import SourceTable, read_tables

TABLES_WITHOUT_STUDY = ("tab:python-rules",)


@pytest.fixture(scope="module")
def paper(shared_dir) -> str:
    path = shared_dir / "paper" / "exgrpo_iclr2026.tex"
    if not path.is_file():
        pytest.skip(f"No source of the paper at {path}; name its folder with EXGRPO_SHARED.")
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def source_tables(paper) -> list[SourceTable]:
    return read_tables(paper)


def source_of(table: PaperTable, source_tables: list[SourceTable]) -> SourceTable:
    place = table.marker_text or rf"\label{{{table.name}}}"
    (found,) = [source for source in source_tables if place in source.environment]
    return found


def printed_rows(study: Study, table: PaperTable) -> Counter[tuple[str, str, tuple[str, ...]]]:
    rows: dict[tuple[str, str], list[str]] = {}
    for number in number_rows(study):
        if number.table == table.name:
            rows.setdefault((number.group, number.row), []).append(number.printed)
    return Counter((group, row, tuple(values)) for (group, row), values in rows.items())


@pytest.mark.parametrize("name", study_names())
def test_every_row_of_the_study_stands_in_the_paper_with_the_same_numbers(name, source_tables):
    study = load_study(name)
    for table in study.tables:
        assert printed_rows(study, table) - Counter(source_of(table, source_tables).rows) == Counter()


def test_every_row_of_numbers_in_the_paper_belongs_to_a_study(source_tables):
    held = Counter(
        row
        for name in study_names()
        for table in load_study(name).tables
        for row in printed_rows(load_study(name), table)
    )
    studied = [
        source
        for source in source_tables
        if not any(rf"\label{{{label}}}" in source.environment for label in TABLES_WITHOUT_STUDY)
    ]
    assert len(studied) == 10
    assert Counter(row for source in studied for row in source.rows) - held == Counter()


@pytest.mark.parametrize("name", study_names())
def test_every_claim_is_quoted_word_for_word_and_its_number_is_in_the_quote(name, paper):
    for claim in load_study(name).claims:
        assert claim.quote in paper
        digits = f"{number_of(claim.value):.4f}".rstrip("0").lstrip("+-")
        assert digits in claim.quote or str(claim.value).replace(",", "{,}").removesuffix("GB") in claim.quote


def test_the_only_averages_beyond_rounding_are_gpg_zero_out_of_distribution():
    found = [
        disagreement
        for name in study_names()
        for disagreement in disagreements(load_study(name))
        if "mean of its cells" in disagreement.reason
    ]
    beyond = [(*item.place[2:], item.printed, round(item.expected, 2)) for item in found if not item.is_rounding]
    assert beyond == [("GPG-Zero", "OOD Avg.", 41.6, 53.73)]
    assert len(found) > len(beyond)
    notes = {(row.row, row.column) for row in number_rows(load_study("main-table")) if row.note}
    assert notes == {("GPG-Zero", "OOD Avg.")}


def test_headline_gains_are_means_over_six_settings_luffy_included():
    study = load_study("headline-gains")
    gains = setting_gains(study)
    assert [*gains][:2] == ["Qwen2.5-Math-7B", "Continual RLVR from LUFFY"]
    assert len(gains) == 6
    means = {column: sum(gain[column] for gain in gains.values()) / 6 for column in study.gain_columns}
    assert {column: round(mean, 1) for column, mean in means.items()} == {"ID gain": 3.5, "OOD gain": 7.6}
    assert disagreements(study) == []


def test_numbers_keep_sign_unit_and_decimals():
    rows = {(row.group, row.row, row.column): row for row in number_rows(load_study("replay-overhead"))}
    overhead = rows["Qwen2.5-Math-1.5B", "Overhead", "Peak Step (s)"]
    assert (overhead.value, overhead.printed) == (-10.1, "-10.1%")
    assert rows["Qwen2.5-Math-7B", "On-Policy", "RAM"].value is None
    assert rows["Qwen2.5-Math-7B", "ExGRPO", "Peak Step (s)"].printed == "256.00"
    assert rows["", "Qwen2.5-Math-7B ExGRPO", "stored trajectories"].value == 202011
