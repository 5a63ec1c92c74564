from tests.exgrpo_core.recording.conftest import run

__all__ = ["run"]
