"""Stock verl in an environment that has `exgrpo-core` and not the workbench, and its launch command on the CPU."""

import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.conftest import REPOSITORY
from tests.jobs.training.engines.tiny_models import build_model, tiny_tokenizer
from tests.verl_on_cpu import OVERRIDES, VARIABLES

RUN_SECONDS = 1500
"""A run takes a minute or two on two free cores; a busy machine may need many more."""
NUM_QUESTIONS = 8
SETTINGS = {
    "algorithm.adv_estimator": "grpo", "algorithm.norm_adv_by_std_in_grpo": False, "data.train_batch_size": 4,
    "data.max_prompt_length": 16, "data.max_response_length": 8, "data.dataloader_num_workers": 0,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 2, "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4,
    "actor_rollout_ref.actor.optim.lr": 1e-3, "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": 256,
    "actor_rollout_ref.rollout.n": 4, "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 4,
    "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
    "reward.custom_reward_function.path": str(Path(__file__).parent / "last_letter_reward.py"),
    "trainer.n_gpus_per_node": 1, "trainer.total_epochs": 3, "trainer.logger": "[console,file]",
    "trainer.val_before_train": False, "trainer.test_freq": -1,
}  # fmt: skip
"""A run of GRPO as a user of verl sets it up."""
ON_THE_CPU = {
    "trainer.device": "cpu", "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
    "actor_rollout_ref.actor.strategy": "fsdp2", "actor_rollout_ref.rollout.name": "vllm",
    "ray_kwargs.ray_init.num_cpus": 36, "+ray_kwargs.ray_init.num_gpus": 1,
}  # fmt: skip
"""What any run of verl without a GPU and vLLM needs."""


def make_environment(folder: Path) -> Path:
    """Return the Python of a fresh environment: what verl's has but the workbench, and `exgrpo-core` by pip."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "exgrpo" not in path.name:
            (packages / path.name).symlink_to(path)
    # pip builds in the folder that it is given.
    source = folder / "exgrpo_core"
    shutil.copytree(REPOSITORY / "exgrpo_core", source, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, source], check=True, env=environment(), cwd=folder, timeout=RUN_SECONDS)
    shutil.rmtree(source)
    return python


def environment() -> dict[str, str]:
    left_out = {"PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"}
    return {name: value for name, value in os.environ.items() if name not in left_out}


def write_inputs(folder: Path) -> dict[str, Any]:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    tokenizer.save_pretrained(folder / "model")
    build_model("llama").save_pretrained(folder / "model")
    rows = [
        {
            "prompt": [{"role": "user", "content": f"{index}a+{index}:"}], "data_source": "toy",
            "reward_model": {"style": "rule", "ground_truth": str(index)}, "extra_info": {"index": index},
        }
        for index in range(NUM_QUESTIONS)
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
    return {
        "actor_rollout_ref.model.path": folder / "model", "data.train_files": folder / "rows.parquet",
        "data.val_files": folder / "rows.parquet", "trainer.default_local_dir": folder / "checkpoints",
        "trainer.rollout_data_dir": folder / "rollouts",
    }  # fmt: skip


def launch(python: Path, folder: Path, settings: dict[str, Any], lines: Sequence[str]) -> subprocess.CompletedProcess:
    """Run stock verl's command with further lines of configuration; its metrics go into `metrics.jsonl`."""
    words = [f"{name}={value}" for name, value in (SETTINGS | ON_THE_CPU | settings).items()] + list(OVERRIDES)
    # Of the checkout's tests verl's platform alone.
    shutil.copytree(REPOSITORY / "tests/verl_on_cpu", folder / "path/tests/verl_on_cpu", dirs_exist_ok=True)
    (folder / "path/tests/__init__.py").touch()
    variables = environment() | VARIABLES
    variables |= {"PYTHONPATH": str(folder / "path"), "VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl")}
    with tempfile.TemporaryDirectory(prefix="ray") as ray_folder:
        return subprocess.run(
            [python, "-m", "verl.trainer.main_ppo", *words, *lines, f"+ray_kwargs.ray_init._temp_dir={ray_folder}"],
            env=variables,
            cwd=folder,
            timeout=RUN_SECONDS,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def metrics_of(folder: Path) -> dict[int, dict[str, float]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return {line["step"]: line["data"] for line in map(json.loads, lines)}


def rollouts_of(folder: Path, step: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rollouts" / f"{step}.jsonl").read_text().splitlines()]


def imports(python: Path, name: str) -> bool:
    program = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    return subprocess.run([python, "-c", program], env=environment(), cwd=python.parent, check=False).returncode == 0
