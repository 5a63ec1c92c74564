"""A stock run of verl as a run directory of the workbench, written while it trains: `+exgrpo.record_to=FOLDER`.

Attempt, events, trajectories and questions are written by the code of the workbench's own runs. Checkpoints, log and
validation stay verl's, and who started the run stops and resumes it: the workbench shows it.
"""

import contextlib
import dataclasses
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.durable_files import write_whole
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.run_attempt import MAX_NAME, Attempt, open_attempt
from exgrpo_core.recording.run_folder import RunFolder
from exgrpo_core.step_report import StepReport
from exgrpo_core.types import Question

logger = logging.getLogger(__name__)

RUN_FILE = "recorded_run"
"""In verl's folder of checkpoints: the id of the run that a resumed training continues."""


@dataclass(frozen=True, slots=True)
class _Retention:
    token_data: str = "successes"


class RunRecord:
    """Records one start of a training, as an attempt of its run; where it can no longer write, it ends as failed."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        folder = RunFolder(attempt.path.parents[1])
        self._recorder = FileRecorder(folder, int(attempt.path.name), _Retention())
        self._is_over = False

    @classmethod
    def open(cls, runs: Path, config: Mapping[str, Any], algorithm: ExGRPOConfig, *, is_resumed: bool) -> "RunRecord":
        """Begin a run in the folder of all runs, or continue that of the checkpoint.

        Raises:
            InputError: Another process records it.
            OSError: It cannot be written.
        """
        link = Path(config["trainer"]["default_local_dir"], RUN_FILE)
        known = link.read_text(encoding="utf-8").strip() if is_resumed and link.is_file() else None
        record = cls(open_attempt(runs, _specification(config, algorithm), known, 0, 1))
        link.parent.mkdir(parents=True, exist_ok=True)
        write_whole(link, record._attempt.path.parents[1].name)
        return record

    def begin(self, questions: Sequence[Question], decode: Callable[[Any], str]) -> None:
        """Record the questions, with their prompts as text, and that the training runs."""
        texts = [dataclasses.replace(item, prompt_text=decode(item.prompt_ids)) for item in questions]
        self._recorder.status("running")
        self._recorder.questions(texts, "training")

    def step(self, report: StepReport) -> None:
        """Record a step, which may be written after this returned."""
        self._write(lambda: self._recorder.step(report))

    def settle(self) -> None:
        """Return once every step is on disk."""
        self._write(self._recorder.settle)

    def end(self, status: str, reason: str = "") -> None:
        """Record how the training ended: `finished` or `failed`."""
        self._write(lambda: self._recorder.status(status, reason))
        self._close(status, reason)

    def _write(self, write: Callable[[], None]) -> None:
        if self._is_over:
            return
        try:
            write()
        except OSError as error:
            logger.warning("exgrpo.record_to: %s; the training continues, without a record.", error)
            self._close("failed", f"The record could not be written: {error}")

    def _close(self, status: str, reason: str) -> None:
        if not self._is_over:
            self._is_over = True
            with contextlib.suppress(OSError):
                self._recorder.close()
            with contextlib.suppress(OSError):
                self._attempt.end(status, reason)


def _specification(config: Mapping[str, Any], algorithm: ExGRPOConfig) -> dict[str, object]:
    files, trainer = config["data"]["train_files"], config["trainer"]
    model = str(config["actor_rollout_ref"]["model"]["path"])
    name = "".join(letter if letter.isalnum() or letter in " ._+@-" else "-" for letter in trainer["experiment_name"])
    return {
        "kind": "train",
        "name": name[:MAX_NAME].lstrip(" ._+@-") or "verl",
        "engine": "verl",
        "model": {"source": os.path.abspath(model) if os.path.exists(model) else model},
        "data": {"source": os.path.abspath(files if isinstance(files, str) else files[0])},
        "algorithm": dataclasses.asdict(algorithm),
        "optim": {"learning_rate": config["actor_rollout_ref"]["actor"]["optim"]["lr"]},
        "verl": {"num_nodes": trainer["nnodes"], "gpus_per_node": trainer["n_gpus_per_node"]},
        "num_steps": trainer["total_training_steps"],
    }
