"""From a specification of supervised fine-tuning to KEY=VALUE overrides of verl 0.9.1's SFT trainer."""

from pathlib import Path

from exgrpo.jobs.specs.base import numpy_seed
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.training.engines.verl_ray.overrides_from_spec import (
    FSDP_UNREAD,
    VERL_FOLDER,
    Value,
    attention_name,
    render_value,
)

SFT_CONFIG = "sft_trainer_engine"
"""Name of verl's configuration for its SFT trainer."""
ENTRY_MODULE = "exgrpo.jobs.training.engines.verl_ray.sft_entry"
DATASET_MODULE = "pkg://jobs.training.engines.verl_ray.sft_dataset"
DATASET_CLASS = "DemonstrationDataset"
DEMONSTRATIONS_FILE = "demonstrations.parquet"
CHECKPOINTS_FOLDER = "sft"
SFT_UNREAD = frozenset(
    {
        *(f"engine.{name}" for name in FSDP_UNREAD),
        *(f"model.{name}" for name in ("tiled_mlp", "mtp", "lora")),
        "data.balance_dp_token", "trainer.balance_batch", "trainer.seed",
    }
)  # fmt: skip
"""Settings of verl's configuration for its SFT trainer, and sections of it, that have no effect."""


def sft_run_overrides(
    spec: TrainSpec, run_path: Path, model_path: str | None = None, resume_path: Path | None = None
) -> list[str]:
    """Return every setting that the specification decides; the specification's overrides come last.

    `model_path` replaces `model.source` of models made on this machine; `resume_path` is the checkpoint to resume.
    """
    settings = _settings(spec, run_path / VERL_FOLDER, model_path or spec.model.source)
    settings["trainer.resume_mode"] = "disable" if resume_path is None else "resume_path"
    settings["trainer.resume_from_path"] = None if resume_path is None else str(resume_path)
    return [*(f"{key}={render_value(value)}" for key, value in settings.items()), *spec.verl.overrides]


def _settings(spec: TrainSpec, folder: Path, model_path: str) -> dict[str, Value]:
    optim = spec.optim
    settings: dict[str, Value] = {
        "data.train_files": [str(folder / DEMONSTRATIONS_FILE)],
        "data.train_batch_size": spec.algorithm.batch_size,
        "data.max_length": spec.sequence_tokens,
        "data.max_token_len_per_gpu": spec.tokens_per_gpu,
        "data.use_dynamic_bsz": True,
        "data.pad_mode": "no_padding",
        "data.num_workers": 0,
        "data.custom_cls.path": DATASET_MODULE,
        "data.custom_cls.name": DATASET_CLASS,
        "model.path": model_path,
        "+model.override_config.attn_implementation": attention_name(spec),
        "model.use_fused_kernels": True,
        "model.use_remove_padding": True,
        "model.enable_gradient_checkpointing": True,
        "engine.strategy": "fsdp2",
        "engine.seed": numpy_seed(spec.seed),
        "optim.lr": optim.learning_rate,
        "optim.lr_warmup_steps": optim.warmup_steps,
        "optim.lr_scheduler_type": "cosine",
        "optim.weight_decay": optim.weight_decay,
        "optim.betas": [optim.beta1, optim.beta2],
        "optim.clip_grad": optim.max_gradient_norm,
        "checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        "checkpoint.load_contents": ["model", "optimizer", "extra"],
        "trainer.default_local_dir": str(folder / CHECKPOINTS_FOLDER),
        "trainer.project_name": "exgrpo",
        "trainer.experiment_name": folder.parent.name,
        "trainer.logger": ["file"],
        # More epochs than needed; the number of steps ends the training.
        "trainer.total_epochs": spec.num_steps,
        "trainer.total_training_steps": spec.num_steps,
        "trainer.save_freq": spec.checkpoint_interval,
        "trainer.test_freq": -1,
        # `SftFollower` removes them once they are linked into the run's checkpoints.
        "trainer.max_ckpt_to_keep": None,
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": spec.verl.gpus_per_node,
    }
    return settings | ({"trainer.device": "cpu"} if spec.model.device == "cpu" else {})
