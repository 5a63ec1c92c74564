"""The look of the workbench: colours with one meaning on every page, and Streamlit's options."""

from dataclasses import asdict, dataclass

import streamlit as st

ACCENT_LIGHT = "#1F5FBF"
ACCENT_DARK = "#3B7DDD"
LINK_DARK = "#8BB8FF"
DASHES = {"solid": "solid", "dot": "dotted", "dash": "dashed", "dashdot": "double"}
"""Dashes of curves, where colours alone are too few, each with its border of CSS in legends."""
FONT = '"Source Sans", sans-serif'


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours by meaning, after Okabe and Ito, so that colour-blind people can tell them apart."""

    fresh: str  # what the policy generates now: Pass@1, fresh rollouts
    held_out: str  # scores on held-out questions
    replay: str  # the replay buffer and what is drawn from it
    retired: str  # the retired set
    warning: str  # limits, maxima, problems
    muted: str  # context: secondary curves
    valid: str  # valid chains of thought
    invalid: str  # invalid chains of thought with a correct answer
    with_code: str  # trajectories with code
    easy: str  # questions by how often they are solved; the three are in order of lightness
    medium: str  # between easy and hard
    hard: str  # rarely solved
    grid: str  # grid lines of charts
    text: str  # text of charts
    ground: str  # what charts are drawn on
    empty_cell: str  # low end of the sequential scale
    full_cell: str  # high end of the sequential scale

    @property
    def wheel(self) -> tuple[str, ...]:
        """Six colours that differ, for curves whose colour has no meaning, such as those of runs."""
        return (self.fresh, self.held_out, self.replay, self.retired, self.warning, self.muted)


@dataclass(frozen=True, slots=True)
class Look:
    """How a curve looks."""

    colour: str
    dash: str = "solid"


_COLOURS = {
    "fresh": ("#0072B2", "#56B4E9"),
    "held_out": ("#D55E00", "#F0894A"),
    "replay": ("#009E73", "#2FC79A"),
    "retired": ("#AA4499", "#DDA0D0"),
    "warning": ("#8F6500", "#E6B422"),
    "muted": ("#667085", "#8593A8"),
    "valid": ("#1B6CA8", "#6DB3E8"),
    "invalid": ("#C0503A", "#F0917B"),
    "with_code": ("#7A4A21", "#D8A679"),
    "easy": ("#6FBF9B", "#4E9C86"),
    "medium": ("#2F86A6", "#6CC3D9"),
    "hard": ("#3A3178", "#EAD9FF"),
    "grid": ("rgba(100, 116, 139, 0.18)", "rgba(148, 163, 184, 0.16)"),
    "text": ("#334155", "#CBD5E1"),
    "ground": ("#FFFFFF", "#0E1420"),
    "empty_cell": ("#EEF3F8", "#1B2635"),
    "full_cell": ("#0B4A82", "#8CCBFF"),
}
LIGHT, DARK = (Palette(**{name: both[place] for name, both in _COLOURS.items()}) for place in (0, 1))


def palette() -> Palette:
    """Return the colours of the theme that the reader's browser shows."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def light_for_dark() -> dict[str, str]:
    """Return the colour on white of each colour that the reader's browser shows; nothing where they are the same."""
    shown, light = asdict(palette()), asdict(LIGHT)
    return {colour: light[name] for name, colour in shown.items() if colour != light[name]}


def look_of_run(index: int) -> Look:
    """Return the look of the run with this index in a list, the same in every chart: by colour, then by dashes."""
    wheel = palette().wheel
    return Look(wheel[index % len(wheel)], list(DASHES)[index // len(wheel) % len(DASHES)])


LOGO = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="188" height="32" viewBox="0 0 188 32">'
    '<g fill="none" stroke="#3B82C4" stroke-width="3" stroke-linecap="round">'
    '<path d="M25 9A11 11 0 1 0 26 19"/><path d="M26 4v6h-6" stroke-linejoin="round"/></g>'
    '<circle cx="15" cy="15.500" r="3.600" fill="#E0763A"/>'
    '<g font-family="system-ui,sans-serif" font-size="17">'
    '<text x="37" y="21.500" lengthAdjust="spacingAndGlyphs" font-weight="700" textLength="66" fill="#3B82C4">'
    "ExGRPO</text>"
    '<text x="108" y="21.500" lengthAdjust="spacingAndGlyphs" textLength="78" fill="#7A8699">Workbench</text></g></svg>'
)
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="32" height="32" viewBox="0 0 32 32">'
    '<g fill="none" stroke="#3B82C4" stroke-width="3.500" stroke-linecap="round">'
    '<path d="M26 10A11 11 0 1 0 27 20"/><path d="M27 4v7h-7" stroke-linejoin="round"/></g>'
    '<circle cx="16" cy="16.500" r="4" fill="#E0763A"/></svg>'
)

_THEME_OPTIONS: dict[str, tuple[object, object]] = {
    "primaryColor": (ACCENT_LIGHT, ACCENT_DARK),
    "backgroundColor": (LIGHT.ground, DARK.ground),
    "secondaryBackgroundColor": ("#F3F6FA", "#161F2E"),
    "textColor": ("#17202E", "#E6EBF3"),
    "borderColor": ("#DDE4ED", "#2A3648"),
    "linkColor": (ACCENT_LIGHT, LINK_DARK),
    "grayTextColor": ("#5B6B80", "#9AA8BC"),
    "grayBackgroundColor": ("#EDF1F6", "#1D2838"),
    "codeBackgroundColor": ("#F3F6FA", "#161F2E"),
    "codeTextColor": ("#17202E", "#E6EBF3"),
    "chartCategoricalColors": (list(LIGHT.wheel), list(DARK.wheel)),
}
_SHARED_OPTIONS = {
    "baseFontSize": 15,
    "baseRadius": "0.5rem",
    "headingFontSizes": ["1.75rem", "1.35rem", "1.1rem", "1rem", "0.95rem", "0.9rem"],
    "headingFontWeights": [650, 600, 600, 600, 600, 600],
    "paddingTop": "0.5rem",
    "paddingBottom": "3rem",
    "metricValueFontSize": "1.55rem",
    "metricValueFontWeight": 600,
    "codeFontSize": "0.82rem",
    "linkUnderline": False,
    "showWidgetBorder": True,
    "showSidebarBorder": True,
}


def streamlit_options(host: str, port: int) -> dict[str, object]:
    """Return Streamlit's options: loopback, no statistics, no magic, no tracebacks, and both themes."""
    options: dict[str, object] = {
        "server.address": host,
        "server.port": port,
        "server.headless": True,
        "server.fileWatcherType": "none",
        "server.allowRunOnSave": False,
        "server.enableStaticServing": False,
        "server.enableAgentApi": False,
        "server.showEmailPrompt": False,
        "server.enableCORS": True,
        "server.enableXsrfProtection": True,
        "server.maxUploadSize": 1_000,  # MB, of rollouts
        "browser.gatherUsageStats": False,
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "client.showErrorLinks": "false",
        "client.allowedOrigins": [],
        "runner.magicEnabled": False,
        "logger.enableRich": False,
    }
    options |= {f"theme.{name}": value for name, value in _SHARED_OPTIONS.items()}
    for name, (light, dark) in _THEME_OPTIONS.items():
        options |= {f"theme.light.{name}": light, f"theme.dark.{name}": dark}
    return options
