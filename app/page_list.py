"""The pages of the workbench, in the order of the sidebar; a new page is a file in `app/app_pages` and a line here."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PageEntry:
    """One page: the name of its file in `app/app_pages`, its title, and its Material icon."""

    name: str
    title: str
    icon: str

    @property
    def file(self) -> str:
        """The page's script, relative to the entry script."""
        return f"app_pages/{self.name}.py"


SECTIONS: dict[str, tuple[PageEntry, ...]] = {
    "Runs": (
        PageEntry("runs", "Runs", "list_alt"),
        PageEntry("new_run", "New run", "add_circle"),
        PageEntry("run", "Run", "monitoring"),
        PageEntry("compare", "Compare", "compare_arrows"),
    ),
    "Replay": (
        PageEntry("replay_buffer", "Replay buffer", "replay"),
        PageEntry("trajectories", "Trajectories", "article"),
        PageEntry("selection_audit", "Selection audit", "fact_check"),
    ),
    "Evidence": (
        PageEntry("snowball", "Snowball", "ac_unit"),
        PageEntry("entropy_and_judge", "Entropy and judge", "gavel"),
        PageEntry("benchmarks", "Benchmarks", "leaderboard"),
        PageEntry("studies", "Studies", "science"),
        PageEntry("paper", "Paper", "menu_book"),
    ),
    "Workbench": (PageEntry("system", "System", "dns"),),
}
"""The pages under the headings of the sidebar."""
NOT_IN_VIEWS = frozenset({"new_run", "studies"})
"""Pages that exist to start runs, which a view cannot."""
OF_REPLAYS = frozenset({"replay_buffer", "selection_audit", "snowball", "paper"})
"""Pages about the replay of experience, which rollouts of other programs say nothing of."""
PAGES = tuple(page for pages in SECTIONS.values() for page in pages)
"""Every page; the first one is the start page, at the address `/`."""
PATHS = ("/", *(f"/{page.name}" for page in PAGES[1:]))
"""The address of each page."""
