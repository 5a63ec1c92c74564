"""`trainer.logger=[...,exgrpo]`: any verl run is recorded into a run folder of the workbench.

The folder of runs is `EXGRPO_RUNS_ROOT`, else `runs`. Metrics are recorded as verl logs them; rollouts as verl dumps
them, where `trainer.rollout_data_dir` asks for dumps.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from wrapt import wrap_function_wrapper

from exgrpo_core import recording

NAME = "exgrpo"


class RunLogger:
    """A backend of verl's `Tracking`."""

    def __init__(self, run: recording.Run) -> None:
        self.run = run

    def log(self, data: Mapping[str, Any], step: int) -> None:
        """Record metrics."""
        self.run.log(step, data)

    def finish(self) -> None:
        """End the run."""
        self.run.finish()


def offer_logger(tracking: Any) -> None:
    """Add the backend to those of verl, each of which `Tracking` knows by name."""
    tracking.Tracking.supported_backend.append(NAME)

    def create(method: Any, made: Any, arguments: Any, options: Any) -> None:
        method(*arguments, **options)
        names = ("project_name", "experiment_name", "default_backend", "config")
        given = dict(zip(names, arguments, strict=False)) | options
        if NAME in given.get("default_backend", ()):
            title = f"{given['project_name']} {given['experiment_name']}"[-recording.MAX_NAME :].strip()
            made.logger[NAME] = RunLogger(recording.start(title, given.get("config")))

    def finish(method: Any, made: Any, arguments: Any, options: Any) -> None:
        is_first = not getattr(made, "_finished", False)
        method(*arguments, **options)
        if is_first and NAME in getattr(made, "logger", {}):
            made.logger[NAME].finish()

    wrap_function_wrapper(tracking, "Tracking.__init__", create)
    # verl's branch `neo` ends loggers when they are collected.
    end = "finish" if hasattr(tracking.Tracking, "finish") else "__del__"
    wrap_function_wrapper(tracking, f"Tracking.{end}", finish)


def record_dumps(trainer_base: Any) -> None:
    """Record what a trainer dumps of its rollouts; what it dumps of validation stays in verl's files."""

    def dump(method: Any, trainer: Any, arguments: Any, options: Any) -> None:
        method(*arguments, **options)
        backends = getattr(getattr(trainer, "logger", None), "logger", {})
        if NAME in backends and options.get("dump_path") == trainer.config.trainer.get("rollout_data_dir"):
            backends[NAME].run.log(trainer.global_steps, trajectories=_trajectories(options))

    wrap_function_wrapper(trainer_base, "PPOTrainer._dump_generations", dump)


def _trajectories(dumped: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    fields = {"prompt": "inputs", "response": "outputs", "answer": "gts", "reward": "scores"}
    columns = {name: dumped[field] for name, field in fields.items()} | dumped["reward_extra_infos_dict"]
    for index in range(len(dumped["inputs"])):
        row = {name: values[index] for name, values in columns.items() if index < len(values)}
        # `{question}_{rollout}_{output}`, as verl names a rollout
        parts = str(row.get("uid", "")).rsplit("_", 2)
        yield row | ({"group": parts[0]} if len(parts) == 3 else {})
