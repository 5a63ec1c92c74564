"""What readers put together: charts of several metrics, or of metrics over another one, and saved views."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
import streamlit as st

from app import address, requests, theme
from app.components.widgets import curve_view, figures, notice
from app.components.widgets.curve_view import CurveView, Line
from app.formats import literal
from app.theme import Look
from exgrpo_core.step_report import METRIC_LABELS, METRICS

ADDRESS = "charts"
MAX_METRICS = 4
MAX_CHARTS = 8
_SAME_X = "the axis of all charts"


@dataclass(frozen=True, slots=True)
class OwnChart:
    """Metrics by key, drawn over the metric `over`, None for the axis of all charts."""

    keys: tuple[str, ...]
    over: str | None = None

    @property
    def title(self) -> str:
        """The labels of its metrics."""
        names = ", ".join(METRIC_LABELS[key] for key in self.keys)
        return f"{names} over {METRIC_LABELS[self.over].lower()}" if self.over else names

    def as_text(self) -> str:
        """Return how the address writes it: `loss/policy+loss/kl~tokens/generated`."""
        return "+".join(self.keys) + (f"~{self.over}" if self.over else "")


@dataclass(frozen=True, slots=True)
class Member:
    """Whose metrics are drawn: `line_of` gives a metric, or one over another, None where it was not recorded."""

    name: str
    colour: str
    line_of: Callable[[str, str | None], Line | None]


def of_address() -> list[OwnChart]:
    """Return the charts that the address asks for; what names no metric is left out."""
    charts = []
    for text in st.query_params.get(ADDRESS, "").split(","):
        names, _, over = text.partition("~")
        keys = tuple(key for key in dict.fromkeys(names.split("+")) if key in METRICS)
        if keys:
            charts.append(OwnChart(keys[:MAX_METRICS], over if over in METRICS else None))
    return charts[:MAX_CHARTS]


def choose(charts: Sequence[OwnChart]) -> None:
    """Show the menu that adds a chart to those of the address."""
    with st.popover("Own chart", icon=":material/add_chart:", key="own-chart"):
        st.multiselect(
            "Metrics", list(METRICS), format_func=METRIC_LABELS.__getitem__, max_selections=MAX_METRICS,
            key="own-chart-metrics", select_all=False, placeholder="One to four on the same axes",
        )  # fmt: skip
        st.selectbox(
            "Over",
            [None, *METRICS],
            format_func=lambda key: METRIC_LABELS[key] if key else _SAME_X,
            key="own-chart-over",
        )
        st.button(
            "Add chart", type="primary", key="own-chart-add", on_click=_add, args=(charts,),
            disabled=len(charts) >= MAX_CHARTS,
        )  # fmt: skip


def show(chart: OwnChart, members: Sequence[Member], view: CurveView, key: str) -> None:
    """Show one chart with the button that takes it away."""
    unit = METRICS[chart.keys[0]] if len(chart.keys) == 1 else "each in its unit"
    figures.show_card(chart.title, unit, figure_of(chart, members, view), key, f"{chart.title}, a chart of your own")
    st.button(
        "Remove chart", icon=":material/close:", type="tertiary", key=f"{key}-remove", on_click=_remove, args=(chart,)
    )


def figure_of(chart: OwnChart, members: Sequence[Member], view: CurveView) -> go.Figure | None:
    """Return one curve a member and metric: members differ by colour, their metrics by dashes; None without values."""
    figure, lines = figures.new_figure(), []
    is_share = all(METRICS[key].startswith("share") for key in chart.keys)
    plain = CurveView(smoothing=view.smoothing)
    for index, metric in enumerate(chart.keys):
        for member in members:
            line = member.line_of(metric, chart.over)
            if line is None or not line.x.size:
                continue
            lines.append(line)
            is_alone = len(members) == 1
            look = theme.look_of_run(index) if is_alone else Look(member.colour, list(theme.DASHES)[index])
            name = METRIC_LABELS[metric] if is_alone else member.name
            name = name if is_alone or len(chart.keys) == 1 else f"{name}: {METRIC_LABELS[metric]}"
            figures.add_line(figure, name, line, look, plain if chart.over else view, is_share=is_share)
    if not lines:
        return None
    if is_share:
        figures.show_shares(figure)
    figure.update_yaxes(rangemode="normal")
    if chart.over is None:
        curve_view.dress(figure, view, curve_view.span_of(lines))
    else:
        figure.update_xaxes(title={"text": METRIC_LABELS[chart.over]})
        figure.update_layout(hovermode="closest")
    figure.update_layout(showlegend=len(lines) > 1)
    return figure


def _add(charts: Sequence[OwnChart]) -> None:
    keys = tuple(st.session_state["own-chart-metrics"])
    if keys:
        _write([*charts, OwnChart(keys, st.session_state["own-chart-over"])])
        st.session_state["own-chart-metrics"] = []


def _remove(chart: OwnChart) -> None:
    _write([other for other in of_address() if other != chart])


def _write(charts: Sequence[OwnChart]) -> None:
    address.put({ADDRESS: ",".join(chart.as_text() for chart in charts) or None})


PARAMETERS = ("x", "smooth", "log", "charts", "metrics", "by")
"""What a view keeps of the address; not the runs, nor the part that is looked at."""


def show_views() -> None:
    """Show the menu; a click on a view writes it into the address."""
    refusal = st.session_state.pop("view-refusal", None)
    if refusal is not None:
        notice.show("error", "View not saved", refusal)
    with st.popover("Views", icon=":material/bookmarks:", key="saved-views"):
        views = requests.list_views()
        if fault := requests.find_view_fault():
            notice.show("warning", "Views cannot be read", fault)
        elif not views:
            st.caption("A view keeps axis, smoothing and your own charts under a name, for any run.")
        for number, (name, view) in enumerate(views.items()):
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.button(
                    literal(name),
                    key=f"view-{number}",
                    type="tertiary",
                    width="stretch",
                    on_click=_open_view,
                    args=(view,),
                )
                st.button(
                    "", icon=":material/delete:", key=f"view-delete-{number}", type="tertiary", help="Delete this view",
                    on_click=_do, args=(requests.delete_view, name),
                )  # fmt: skip
        name = st.text_input("Name", key="view-name", placeholder="Name of this view", label_visibility="collapsed")
        kept = {key: value for key in PARAMETERS if (value := st.query_params.get(key))}
        st.button(
            "Save this view", key="view-save", disabled=not name.strip(), width="stretch",
            on_click=_do, args=(requests.save_view, name.strip(), kept),
        )  # fmt: skip


def _open_view(view: dict[str, str]) -> None:
    address.put({**{key: view.get(key) for key in PARAMETERS}, "zoom": None})


def _do(command: Callable[..., None], *arguments: object) -> None:
    try:
        command(*arguments)
    except requests.UserError as error:
        st.session_state["view-refusal"] = str(error)
