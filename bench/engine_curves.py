"""The verl engine's learning curve beside the embedded engine's: ExGRPO on `chains`, equal settings and warm models.

`python -m bench.engine_curves` starts itself again in the interpreter of verl's environment.
"""

import argparse
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

from bench.learning import Job, train
from bench.report import report
from jobs.machine.engine_environments import engine_python

RESULT_FILE = Path(__file__).parent / "results" / "learning_engines.json"
LEARNING_RATE = 2e-4


def compare_engines(num_seeds: int, num_steps: int, out: Path) -> None:
    """Train on both engines, print Avg@8 by step and write `out`; continues in verl's interpreter if necessary."""
    if importlib.util.find_spec("verl") is None:
        python = engine_python("verl")
        if python == sys.executable:
            raise SystemExit(f"{python}: verl is not installed there; run `make verl-env`.")
        os.execv(python, [python, "-m", "bench.engine_curves", *sys.argv[1:]])
    runs: list[dict[str, Any]] = []
    figures: dict[str, float] = {}
    for engine in ("embedded", "verl"):
        for seed in range(num_seeds):
            curve = train(Job("ExGRPO", LEARNING_RATE, seed, num_steps), engine)
            scores = "  ".join(f"{step}: {score:.3f}" for step, score in zip(curve.steps, curve.avg_at_8, strict=True))
            print(f"{engine:<9} seed {seed}, Avg@8 by step   {scores}   ({curve.seconds:.0f} s)", flush=True)
            kept = {name: getattr(curve, name) for name in ("steps", "fresh_rollouts", "avg_at_8", "seconds")}
            runs.append({"engine": engine, "seed": seed, "learning_rate": LEARNING_RATE} | kept)
        runs_of_engine = [run for run in runs if run["engine"] == engine]
        figures[f"{engine}: Avg@8 start"] = sum(run["avg_at_8"][0] for run in runs_of_engine) / num_seeds
        figures[f"{engine}: Avg@8 end"] = sum(run["avg_at_8"][-1] for run in runs_of_engine) / num_seeds
        figures[f"{engine}: gain"] = figures[f"{engine}: Avg@8 end"] - figures[f"{engine}: Avg@8 start"]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"figures": figures, "runs": runs}, indent=1) + "\n", encoding="utf-8")
    report("engine_curves", figures, {"verl: gain": ">= 0.1"})


def main() -> None:
    """Read the options and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--out", type=Path, default=RESULT_FILE)
    options = parser.parse_args()
    compare_engines(options.seeds, options.steps, options.out)


if __name__ == "__main__":
    main()
