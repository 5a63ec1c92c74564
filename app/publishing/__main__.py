"""`python -m exgrpo.app.publishing`: what `exgrpo publish` starts, since commands know no pages."""

import argparse
import logging
import os
import sys
from pathlib import Path

from exgrpo.db import DATABASE_URL_VARIABLE
from exgrpo_core.durable_files import explain
from exgrpo_core.errors import UserError


def main() -> int:
    """Write the folder; what is refused is one sentence on stderr."""
    logging.disable(logging.WARNING)  # Streamlit warns at each of its functions that it serves nobody
    from exgrpo.app import settings
    from exgrpo.app.publishing.static_page import write_page

    parser = argparse.ArgumentParser(prog="python -m exgrpo.app.publishing")
    parser.add_argument("--runs-root", type=Path, required=True)
    parser.add_argument("folder", type=Path)
    parser.add_argument("run_ids", nargs="+")
    options = parser.parse_args()
    os.umask(0o022)  # a web server opens the folder
    settings.configure(settings.AppSettings(options.runs_root, os.environ.get(DATABASE_URL_VARIABLE)))
    try:
        write_page(options.folder, options.run_ids)
    except (UserError, OSError) as error:
        why = error if isinstance(error, UserError) else _why(error, options.folder)
        print(why, file=sys.stderr)  # noqa: T201 - the one sentence a user sees
        return 2
    return 0


def _why(error: OSError, folder: Path) -> str:
    at = Path(error.filename or folder)
    what = f"{folder}: cannot be written" if at.is_relative_to(folder) else f"{at}: cannot be read"
    return f"{what} ({explain(error)})."


if __name__ == "__main__":
    sys.exit(main())
