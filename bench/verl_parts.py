"""The components of a run on the verl engine on this machine's CPU."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobs.runs.directory import RunDirectory
from jobs.specs.train import TrainSpec, merge_settings, parse_spec

ON_VERL = {"engine": "verl", "model": {"device": "cpu"}, "verl": {"gpus_per_node": 1, "rollout": "hf"}}


@contextmanager
def open_verl_parts(spec: TrainSpec) -> Iterator[Any]:
    """Open the components of a run on the verl engine on this machine's CPU."""
    from jobs.training.verl_composition import CPU_VARIABLES, open_components

    os.environ.update(CPU_VARIABLES)
    content = merge_settings(spec.model_dump(mode="json"), ON_VERL)
    with tempfile.TemporaryDirectory() as folder:
        spec = parse_spec(content, "bench.learning")
        with open_components(spec, RunDirectory.create(Path(folder), spec)) as components:
            yield components
