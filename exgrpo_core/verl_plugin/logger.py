"""`trainer.logger=[...,exgrpo]`: any verl run is recorded into a run folder of the workbench.

The folder of runs is `EXGRPO_RUNS_ROOT`, else `runs`. Metrics are recorded as verl logs them; rollouts as verl dumps
them, where `trainer.rollout_data_dir` asks for dumps.
"""

from collections.abc import Iterator, Mapping
from functools import wraps
from typing import Any

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
    """Add the backend to those of verl, each of which `Tracking` knows by name.

    Plain functions take the place of methods: Ray and cloudpickle would lose other wrappers in an actor's class.
    """
    tracking.Tracking.supported_backend.append(NAME)
    # verl's branch `neo` ends loggers when they are collected.
    ending = "finish" if hasattr(tracking.Tracking, "finish") else "__del__"
    make, end = tracking.Tracking.__init__, getattr(tracking.Tracking, ending)

    @wraps(make)
    def create(made: Any, *arguments: Any, **options: Any) -> None:
        make(made, *arguments, **options)
        names = ("project_name", "experiment_name", "default_backend", "config")
        given = dict(zip(names, arguments, strict=False)) | options
        if NAME in given.get("default_backend", ()):
            title = f"{given['project_name']} {given['experiment_name']}"[-recording.MAX_NAME :].strip()
            made.logger[NAME] = RunLogger(recording.start(title, given.get("config")))

    @wraps(end)
    def finish(made: Any, *arguments: Any, **options: Any) -> None:
        is_first = not getattr(made, "_finished", False)
        end(made, *arguments, **options)
        if is_first and NAME in getattr(made, "logger", {}):
            made.logger[NAME].finish()

    tracking.Tracking.__init__ = create
    setattr(tracking.Tracking, ending, finish)


def record_dumps(trainer_base: Any) -> None:
    """Record what a trainer dumps of its rollouts; what it dumps of validation stays in verl's files."""
    dump_generations = trainer_base.PPOTrainer._dump_generations

    @wraps(dump_generations)
    def dump(trainer: Any, *arguments: Any, **options: Any) -> None:
        dump_generations(trainer, *arguments, **options)
        backends = getattr(getattr(trainer, "logger", None), "logger", {})
        if NAME in backends and options.get("dump_path") == trainer.config.trainer.get("rollout_data_dir"):
            backends[NAME].run.log(trainer.global_steps, trajectories=_trajectories(options))

    trainer_base.PPOTrainer._dump_generations = dump


def _trajectories(dumped: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    fields = {"prompt": "inputs", "response": "outputs", "answer": "gts", "reward": "scores"}
    columns = {name: dumped[field] for name, field in fields.items()} | dumped["reward_extra_infos_dict"]
    for index in range(len(dumped["inputs"])):
        row = {name: values[index] for name, values in columns.items() if index < len(values)}
        # `{question}_{rollout}_{output}`, as verl names a rollout
        parts = str(row.get("uid", "")).rsplit("_", 2)
        yield row | ({"group": parts[0]} if len(parts) == 3 else {})
