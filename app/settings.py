"""Where this process finds its runs: set once by the server, read by `app.queries` and `app.commands`."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class AppSettings:
    """`database_url` None means the SQLite file inside `runs_root`."""

    runs_root: Path
    database_url: str | None = None


_settings: list[AppSettings] = []


def configure(settings: AppSettings) -> None:
    """Set the settings of this process."""
    _settings[:] = [settings]


def current() -> AppSettings:
    """Return the settings; without a server (a page run on its own) runs lie in ./runs."""
    return _settings[0] if _settings else AppSettings(Path("runs").absolute())
