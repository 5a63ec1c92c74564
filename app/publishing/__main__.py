"""`python -m app.publishing`: what `exgrpo publish` starts, since commands know no pages."""

import argparse
import logging
import os
import sys
from pathlib import Path

from db import DATABASE_URL_VARIABLE
from exgrpo_core.durable_files import explain
from exgrpo_core.errors import UserError


def main() -> int:
    """Write the folder; what is refused is one sentence on stderr."""
    logging.disable(logging.WARNING)  # Streamlit warns at each of its functions that it serves nobody
    from app import settings
    from app.publishing.static_page import write_page

    parser = argparse.ArgumentParser(prog="python -m app.publishing")
    parser.add_argument("--runs-root", type=Path, required=True)
    parser.add_argument("folder", type=Path)
    parser.add_argument("run_ids", nargs="+")
    options = parser.parse_args()
    os.umask(0o022)  # a web server opens the folder
    settings.configure(settings.AppSettings(options.runs_root, os.environ.get(DATABASE_URL_VARIABLE)))
    try:
        write_page(options.folder, options.run_ids)
    except (UserError, OSError) as error:
        why = f"{options.folder}: cannot be written ({explain(error)})." if isinstance(error, OSError) else error
        print(why, file=sys.stderr)  # noqa: T201 - the one sentence a user sees
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
