"""`python -m exgrpo.app.serving` serves the pages, the first one loaded before it answers."""

import sys
from importlib import import_module

from exgrpo_core.process_memory import gc_paused

FIRST_PAGE = ("exgrpo.app.components.widgets.page_frame", "exgrpo.app.components.runs.run_table")

if __name__ == "__main__":
    with gc_paused():
        for name in FIRST_PAGE:
            import_module(name)
        from exgrpo.app.serving.server import main
    sys.exit(main())
