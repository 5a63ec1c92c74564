"""Recording a run of TRL's `GRPOTrainer`: `trainer.add_callback(RecordingCallback(trainer, "my run"))`.

Tried with TRL 1.16. It reads what TRL keeps for its own log of completions, of all processes, in the main one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from exgrpo_core import recording


class RecordingCallback:
    """Metrics as TRL logs them; prompts, completions, rewards by function, advantages and columns of each generation.

    It is no subclass of transformers' callback, which the core does not import: of it only the events count.
    """

    def __init__(self, trainer: Any, name: str, folder: str | Path | None = None) -> None:  # noqa: ANN401 - of TRL
        """Start the run, in the main process.

        Raises:
            InputError: The name cannot be a run's.
            CannotRecordError: The folder cannot be written.
        """
        self._trainer = trainer
        self._run: recording.Run | None = None
        if trainer.accelerator.is_main_process:
            self._run = recording.start(name, trainer.args.to_dict(), folder, rank=0, num_ranks=1)
        self._seen: Sequence[object] = ()

    @property
    def run(self) -> recording.Run | None:
        """The run, None in the other processes."""
        return self._run

    def on_step_end(self, _args: object, state: Any, _control: object, **_: object) -> None:  # noqa: ANN401 - likewise
        """Record what was generated since the last step."""
        if self._run is not None and self._is_new():
            self._run.log(state.global_step, trajectories=self._trajectories())

    def on_log(
        self, _args: object, state: Any, _control: object, logs: Mapping[str, Any] | None = None, **_: object  # noqa: ANN401
    ) -> None:  # fmt: skip
        """Record metrics."""
        if self._run is not None and logs:
            self._run.log(state.global_step, logs)

    def on_evaluate(self, *_: object, **__: object) -> None:
        """Leave out what an evaluation generated."""
        self._is_new()

    def on_train_end(self, *_: object, **__: object) -> None:
        """End the run."""
        if self._run is not None:
            self._run.finish()

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return what the other events of a trainer do: nothing."""
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *_, **__: None

    def _is_new(self) -> bool:
        """Whether something was generated since the last call: TRL keeps the newest, of which each number is new."""
        newest = [*self._trainer._logs["advantages"]]
        is_new = len(newest) != len(self._seen) or any(
            one is not other for one, other in zip(newest, self._seen, strict=True)
        )
        self._seen = newest
        return is_new

    def _trajectories(self) -> Iterator[dict[str, Any]]:
        logs, counts = self._trainer._logs, self._token_counts()
        weights = dict(zip(self._trainer.reward_func_names, self._trainer.reward_weights.tolist(), strict=True))
        for index, completion in enumerate(logs["completion"]):
            parts = {name: values[index] for name, values in logs["rewards"].items()}
            known = [weights[name] * part for name, part in parts.items() if part == part]
            columns = {name: values[index] for name, values in logs["extra"].items()}
            text = completion if isinstance(completion, str) else str((completion or [{}])[-1].get("content"))
            yield {
                "prompt": logs["prompt"][index],
                "completion": completion,
                "rewards": parts,
                "reward": sum(known) if known else None,
                "advantage": logs["advantages"][index],
                "num_tokens": counts.get((text, logs["advantages"][index])),
                **columns,
            }

    def _token_counts(self) -> dict[tuple[str, float], int]:
        """Return how many tokens count in this process's newest completions, by text and advantage.

        TRL's log has another order than these batches, and the completions of other processes too. A text and advantage
        that two completions of different lengths have is left out.
        """
        rows = [
            (ids[mask], advantage)
            for batch in self._trainer._buffered_inputs or ()
            for ids, mask, advantage in zip(
                batch["completion_ids"], batch["completion_mask"].bool(), batch["advantages"].tolist(), strict=True
            )
        ]
        texts = self._trainer.processing_class.batch_decode([ids for ids, _ in rows], skip_special_tokens=True)
        counts: dict[tuple[str, float], set[int]] = {}
        for text, (ids, advantage) in zip(texts, rows, strict=True):
            counts.setdefault((text, advantage), set()).add(len(ids))
        return {key: max(found) for key, found in counts.items() if len(found) == 1 and found != {0}}
