import pytest

from app.components.runs import run_table

pytestmark = pytest.mark.slow


def test_every_column_that_is_no_field_of_the_specification_has_cells(monkeypatch):
    without_cells = []
    monkeypatch.setattr(run_table, "field_values", lambda _rows, names: without_cells.extend(names) or {})
    run_table.table([], (*run_table.DEFAULT_COLUMNS, *run_table.FURTHER_COLUMNS))
    assert without_cells == [], "app/components/runs/run_table.py: give it cells in `table`."
