"""The components of a run on the verl engine on this machine's CPU."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobs.runs.directory import RunDirectory
from jobs.specs.train import TrainSpec, merge_settings, parse_spec
from tests.verl_on_cpu import VARIABLES, on_cpu

ON_VERL = {"engine": "verl", "model": {"device": "cpu"}, "verl": on_cpu(1)}


@contextmanager
def open_verl_parts(spec: TrainSpec) -> Iterator[Any]:
    """Open the components of a run on the verl engine on this machine's CPU."""
    from jobs.training.verl_composition import open_components

    os.environ.update(VARIABLES)
    content = merge_settings(spec.model_dump(mode="json"), ON_VERL)
    with tempfile.TemporaryDirectory() as folder:
        spec = parse_spec(content, "bench.learning")
        with open_components(spec, RunDirectory.create(Path(folder), spec)) as components:
            yield components
