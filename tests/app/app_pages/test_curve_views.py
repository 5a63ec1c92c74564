"""How curves are drawn on Run and Compare: axes, smoothing, zoom, hidden runs, and own charts."""

import pytest

from tests.app.charts import figures

PAGES = {"run": {"run": "run-finished"}, "compare": {"runs": "run-finished,run-running"}}
EVERY_PAGE = pytest.mark.parametrize("page", list(PAGES))
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("recorded_shared")]


def address(page, name):
    value = page.query_params[name]
    return value if isinstance(value, str) else ",".join(value)


def trace(page, name):
    return next(data for figure in figures(page) for data in figure["data"] if data.get("name") == name)


@pytest.mark.parametrize(("page", "axis"), [("run", "Wall clock"), ("compare", "Generated tokens")])
def test_curves_are_drawn_against_each_axis(open_page, page, axis):
    opened = open_page(page, **PAGES[page], x=axis)
    titles = {figure["layout"]["xaxis"]["title"]["text"] for figure in figures(opened)}
    assert len(titles) == 1
    assert titles != {"step"}


@EVERY_PAGE
def test_charts_share_window_and_unit_and_smoothing_and_log_axis_are_kept_in_the_address(open_page, page):
    opened = open_page(page, **PAGES[page])
    first = figures(opened)[0]
    assert len({tuple(figure["layout"]["xaxis"]["range"]) for figure in figures(opened)}) == 1
    assert first["layout"]["yaxis"]["tickformat"].endswith("%")
    assert all("%}" in data["hovertemplate"] for data in first["data"])
    plain = len(first["data"])
    opened.button_group(key="curves-smooth").set_value(0.6).run()
    opened.button_group(key="curves-log").set_value(["Log"]).run()
    assert (address(opened, "smooth"), address(opened, "log")) == ("0.6", "true")
    first = figures(opened)[0]
    assert first["layout"]["yaxis"]["type"] == "log"
    assert len(first["data"]) > plain


@EVERY_PAGE
def test_own_charts_have_readable_names_and_can_be_taken_away(open_page, page):
    opened = open_page(
        page, **PAGES[page], charts="loss/policy+loss/total,policy/entropy~tokens/generated_total,none/x"
    )
    titles = [element.value for element in opened.markdown]
    assert any(title.startswith("**Policy loss, Total loss**") for title in titles)
    assert any(title.startswith("**Entropy of fresh rollouts over generated tokens so far**") for title in titles)
    next(button for button in opened.button if button.label == "Remove chart").click().run()
    assert address(opened, "charts") == "policy/entropy~tokens/generated_total"


def test_a_chart_is_put_together_by_fields_of_different_names_and_is_in_the_address(open_page):
    page = open_page("run", run="run-finished")
    fields = [*page.button_group, *page.multiselect, *page.selectbox]
    names = {field.key: field.label for field in fields if field.key and field.key.startswith(("curves-", "own-"))}
    assert (names["curves-x"], names["own-chart-over"]) == ("Horizontal axis", "Own chart over")
    assert len(names) == len({*names.values()})
    page.multiselect(key="own-chart-metrics").set_value(["loss/policy", "loss/total"]).run()
    page.button(key="own-chart-add").click().run()
    assert address(page, "charts") == "loss/policy+loss/total"


def curves_of(figure):
    return [data["name"] for data in figure["data"] if data.get("hoverinfo") != "skip"]


def test_the_legend_of_compare_hides_a_run_in_all_charts_and_shows_it_again(open_page):
    page = open_page("compare", runs="run-finished,run-running")
    assert {len(curves_of(figure)) for figure in figures(page)} == {2}
    page.button(key="legend-1").click().run()
    assert address(page, "hide") == "run-running"
    assert {name for figure in figures(page) for name in curves_of(figure)} == {"exgrpo whole"}
    page.button(key="legend-1").click().run()
    assert {len(curves_of(figure)) for figure in figures(page)} == {2}
