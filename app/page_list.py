"""The pages of the workbench, in the order of the sidebar.

A new page is a file in `app/app_pages` and a line here.
"""

from dataclasses import dataclass


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
PLACES = tuple((page.name, {"view": tab} if tab else {}) for page in PAGES for tab in page.tabs or ("",))
"""Every tab of every page, with the parameters of its address."""
PATHS = ("/", *(f"/{page.name}" for page in PAGES[1:]))
