"""The pages of the workbench, in the order of the sidebar, and where the content of former pages is now.

A new page is a file in `app/app_pages` and a line here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode


@dataclass(frozen=True, slots=True)
class PageEntry:
    """One page: the name of its file in `app/app_pages`, its title, its Material icon, and its tabs."""

    name: str
    title: str
    icon: str
    tabs: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        """The page's script, relative to the entry script."""
        return f"app_pages/{self.name}.py"


PAGES = (
    PageEntry("runs", "Runs", "list_alt"),
    PageEntry("new_run", "New run", "add_circle"),
    PageEntry(
        "run", "Run", "monitoring",
        ("Curves", "Buffer", "Trajectories", "Reasoning", "Step", "Log", "Configuration"),
    ),
    PageEntry("compare", "Compare", "compare_arrows"),
    PageEntry("benchmarks", "Benchmarks", "leaderboard"),
    PageEntry("methods", "Methods", "menu_book", ("Paper", "Replay methods", "Studies")),
    PageEntry("system", "System", "dns"),
)  # fmt: skip
"""Every page; the first one is the start page, at the address `/`."""
NOT_IN_VIEWS = frozenset({"new_run"})
"""Pages that exist to start runs, which a view cannot."""
OF_REPLAYS = frozenset({"methods"})
"""Pages about the replay of experience, which rollouts of other programs say nothing of."""
TABS = {page.name: page.tabs for page in PAGES}
"""The tabs of each page."""
PLACES = tuple((page.name, {"view": tab} if tab else {}) for page in PAGES for tab in page.tabs or ("",))
"""Every tab of every page, with the parameters of its address."""
PATHS = ("/", *(f"/{page.name}" for page in PAGES[1:]))
"""The address of each page."""


@dataclass(frozen=True, slots=True)
class _Moved:
    """Where a former page is: the page, its tab, and the parameters of views that are not a part of that name there."""

    page: str
    tab: str = ""
    views: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


_CODE, _STEP = {"view": "Reasoning", "part": "Code"}, {"view": "Step"}
_GONE = "What if"
_MOVED = {
    "run": _Moved("run", "", {
        "Replay buffer": {"view": "Buffer", "part": "Over time"},
        "Attempts": {"view": "Configuration", "part": "Attempts"},
        _GONE: _STEP,
    }),
    "replay_buffer": _Moved("run", "Buffer", {_GONE: _STEP}),
    "trajectories": _Moved("run", "Trajectories"),
    "selection_audit": _Moved("run", "Step"),
    "snowball": _Moved("run", "Reasoning", {"": _CODE, "Code and entropy": _CODE}),
    "entropy_and_judge": _Moved("run", "Reasoning", {
        "Entropy and validity": {"view": "Reasoning"},
        "Failures": {"view": "Trajectories", "outcome": "not correct"},
        "Policy entropy": {"view": "Curves"},
    }),
    "studies": _Moved("methods", "Studies"),
    "paper": _Moved("methods", "Paper"),
}  # fmt: skip
FORMER_PATHS = tuple(f"/{name}" for name in _MOVED if f"/{name}" not in PATHS)
"""Addresses of former pages."""


def moved(path: str, query: Sequence[tuple[str, str]]) -> str | None:
    """Return where the content of a former address is, relative to it and with its parameters; None of today's."""
    values, place = dict(query), _MOVED.get(path.removeprefix("/"))
    view = values.get("view", "")
    if values.get("part") == _GONE:  # a former part of a tab that is still there
        view, query = _GONE, [(name, value) for name, value in query if name != "part"]
    if place is None or not (place.tab or view in place.views):
        return None
    there = place.views.get(view, {"view": place.tab} | ({"part": view} if view else {}))
    return f"{place.page}?{urlencode([*((name, value) for name, value in query if name != 'view'), *there.items()])}"
