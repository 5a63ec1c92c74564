"""Rollouts of other tools for `bench.real_model`: vLLM's build for the CPU, and llama.cpp, one thread each.

`python -m bench.other_rollouts MODEL DTYPE QUESTIONS TOKENS` runs in an environment with vLLM and generates once a line
that it reads, eager, without log-probs; it prints processor seconds as the contenders of `bench.real_model` do.
llama.cpp is measured by its program `llama-batched-bench`, which decodes but draws no tokens.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from bench.real_model_contender import PROMPT_TOKENS, RESULT, ROLLOUTS
from jobs.machine.engine_environments import VLLM_VARIABLES


def decode_by_llama_cpp(program: Path, model: Path, num_rows: int, num_tokens: int) -> float:
    """Return seconds in which llama.cpp decodes so many tokens of each row, prompts not counted."""
    sizes = {"-npp": PROMPT_TOKENS, "-ntg": num_tokens, "-npl": num_rows}
    sizes |= {"-c": num_rows * (PROMPT_TOKENS + num_tokens), "-t": 1, "-tb": 1}
    words = [str(word) for pair in sizes.items() for word in pair]
    done = subprocess.run(
        [program, "-m", model, *words, "--output-format", "jsonl"], capture_output=True, text=True, check=True
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return float(json.loads(line)["t_tg"])


def main(model: str, dtype: str, num_questions: int, num_tokens: int) -> None:
    """Generate once a line of the input."""
    os.environ |= VLLM_VARIABLES | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1"}
    import torch
    from vllm import LLM, SamplingParams

    engine = LLM(model, dtype=dtype, enforce_eager=True, skip_tokenizer_init=True,
                 max_num_seqs=num_questions * ROLLOUTS, max_model_len=PROMPT_TOKENS + num_tokens)  # fmt: skip
    torch.set_num_threads(1)
    settings = SamplingParams(n=ROLLOUTS, temperature=1.0, max_tokens=num_tokens, ignore_eos=True, detokenize=False)
    rows = np.random.default_rng(0).integers(3, 1000, (num_questions, PROMPT_TOKENS))
    prompts = [{"prompt_token_ids": row.tolist()} for row in rows]
    for _ in sys.stdin:
        began_at = time.process_time()
        engine.generate(prompts, settings, use_tqdm=False)
        print(f"{RESULT}{json.dumps({'s': time.process_time() - began_at})}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
