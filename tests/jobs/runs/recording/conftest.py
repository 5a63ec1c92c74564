from tests.exgrpo_core.run_files.conftest import run

__all__ = ["run"]
