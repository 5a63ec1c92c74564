"""TRL's GRPOTrainer as its users run it on a CPU, with Dr.GRPO's loss and nothing written or shown."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

_DR_GRPO_ON_A_CPU: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "dataloader_pin_memory": False,
    "scale_rewards": "none",
    "loss_type": "dr_grpo",
    "optim": "adamw_torch_fused",
    "lr_scheduler_type": "constant",
    "report_to": "none",
    "save_strategy": "no",
    "logging_strategy": "no",
    "disable_tqdm": True,
    "seed": 0,
}


def make_trainer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    reward: Callable[..., list[float]],
    rows: dict[str, Sequence[object]],
    callback: TrainerCallback,
    **settings: Any,  # noqa: ANN401 - fields of GRPOConfig
) -> GRPOTrainer:
    """Return a trainer on `rows` (columns of the data set) with `settings` besides those that both benchmarks share."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            reward_funcs=reward,
            args=GRPOConfig(**_DR_GRPO_ON_A_CPU | settings),
            train_dataset=Dataset.from_dict(rows),
            callbacks=[callback],
        )
    trainer.remove_callback(PrinterCallback)
    return trainer
