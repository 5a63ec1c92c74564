"""verl engines on the tiny random model of the embedded engine's tests; verl itself is imported when one is opened."""

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exgrpo.jobs.specs.train import TrainSpec, parse_spec
from tests.jobs.training.engines.embedded.engines import CONFIG
from tests.jobs.training.engines.tiny_models import END, build_model, tiny_tokenizer
from tests.verl_on_cpu import on_cpu

if TYPE_CHECKING:
    from exgrpo.jobs.training.engines.verl_ray.engine import WorkbenchVerlEngine

REWARD_FILE = Path(__file__).parent / "even_reward.py"
LEARNING_RATE = 2e-3


class NoRollouts:
    """Takes the place of verl's agent loops, for an engine that only scores and learns: a process fewer."""

    @classmethod
    def create(cls, **_settings: Any) -> "NoRollouts":
        return cls()


def tiny_spec(
    model: Path,
    num_ranks: int,
    lora: dict[str, Any] | None = None,
    learning_rate: float = LEARNING_RATE,
    num_generating: int | None = None,
    overrides: Sequence[str] = (),
    **changes: Any,
) -> TrainSpec:
    verl = on_cpu(num_ranks, num_generating)
    algorithm = dataclasses.asdict(dataclasses.replace(CONFIG, **changes))
    content = {
        "engine": "verl", "model": {"source": str(model), "device": "cpu", "lora": lora},
        "verl": verl | {"overrides": [*verl["overrides"], *overrides]}, "algorithm": algorithm,
        "optim": {"learning_rate": learning_rate},
    }  # fmt: skip
    return parse_spec(content, "test")


def save_tiny_model(folder: Path, architecture: str = "qwen2_tied") -> Path:
    build_model(architecture).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@contextmanager
def open_engine(
    folder: Path, num_ranks: int, *, architecture: str = "qwen2_tied", has_rollouts: bool = True, **changes: Any
) -> Iterator["WorkbenchVerlEngine"]:
    with warnings.catch_warnings():
        # verl and Ray warn of libraries that are not there and of what they themselves will change.
        warnings.simplefilter("ignore")
        from exgrpo.jobs.training.engines.verl_ray.engine import WorkbenchVerlEngine
        from exgrpo.jobs.training.engines.verl_ray.overrides_from_spec import ENGINE_OVERRIDES, verl_overrides
        from exgrpo_core.verl_plugin.session import compose_config, open_trainer

        spec = tiny_spec(save_tiny_model(folder / "model", architecture), num_ranks, **changes)
        words = [*ENGINE_OVERRIDES, *verl_overrides(spec, folder / "run")]
        words.append(f"reward.custom_reward_function.path={REWARD_FILE}")
        if not has_rollouts:
            manager = f"{NoRollouts.__module__}.{NoRollouts.__qualname__}"
            words.append(f"+actor_rollout_ref.rollout.agent.agent_loop_manager_class={manager}")
        with open_trainer(compose_config(words)) as trainer:
            yield WorkbenchVerlEngine(trainer, [END], spec.algorithm, seed=0)
