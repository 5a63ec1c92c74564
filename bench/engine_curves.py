"""The verl engine's learning curve beside the embedded engine's: ExGRPO on `chains`, one warm model, equal settings.

Part of `python -m bench.learning --engine verl`, which goes on in the interpreter of verl's environment.
"""

import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.report import report
from jobs.engine_environments import engine_python
from jobs.run_directory import RunDirectory
from jobs.specs import TrainSpec, merge_settings, parse_spec

RESULT_FILE = Path(__file__).parent / "results" / "learning_engines.json"
LEARNING_RATE = 2e-4
ON_VERL = {"engine": "verl", "model": {"device": "cpu"}, "verl": {"gpus_per_node": 1, "rollout": "hf"}}


def compare_engines(num_seeds: int, num_steps: int, out: Path) -> None:
    """Train on both engines, print Avg@8 by step and write `out`; goes on in verl's interpreter if this is another."""
    if importlib.util.find_spec("verl") is None:
        python = engine_python("verl")
        if python == sys.executable:
            raise SystemExit(f"{python}: verl is not installed there; run `make verl-env`.")
        os.execv(python, [python, "-m", "bench.learning", *sys.argv[1:]])
    from bench.learning import Job, train

    runs: list[dict[str, Any]] = []
    figures: dict[str, float] = {}
    for engine in ("embedded", "verl"):
        for seed in range(num_seeds):
            curve = train(Job("ExGRPO", LEARNING_RATE, seed, num_steps), engine)
            shown = "  ".join(f"{step}: {score:.3f}" for step, score in zip(curve.steps, curve.avg_at_8, strict=True))
            print(f"{engine:<9} seed {seed}, Avg@8 by step   {shown}   ({curve.seconds:.0f} s)", flush=True)
            kept = {name: getattr(curve, name) for name in ("steps", "fresh_rollouts", "avg_at_8", "seconds")}
            runs.append({"engine": engine, "seed": seed, "learning_rate": LEARNING_RATE} | kept)
        own = [run for run in runs if run["engine"] == engine]
        figures[f"{engine}: Avg@8 start"] = sum(run["avg_at_8"][0] for run in own) / num_seeds
        figures[f"{engine}: Avg@8 end"] = sum(run["avg_at_8"][-1] for run in own) / num_seeds
        figures[f"{engine}: gain"] = figures[f"{engine}: Avg@8 end"] - figures[f"{engine}: Avg@8 start"]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"figures": figures, "runs": runs}, indent=1) + "\n", encoding="utf-8")
    report("learning --engine verl", figures, {"verl: gain": ">= 0.1"})


@contextmanager
def open_verl_parts(spec: TrainSpec) -> Iterator[Any]:
    """Open the parts of a run on the verl engine on this machine's CPU."""
    from jobs.training.verl_composition import CPU_VARIABLES, open_parts

    os.environ.update(CPU_VARIABLES)
    content = merge_settings(spec.model_dump(mode="json"), ON_VERL)
    with tempfile.TemporaryDirectory() as folder:
        own = parse_spec(content, "bench.learning")
        with open_parts(own, RunDirectory.create(Path(folder), own)) as parts:
            yield parts
