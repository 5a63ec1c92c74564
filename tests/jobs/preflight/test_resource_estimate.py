"""What a run takes of memory and disk."""

import pytest

from jobs.preflight.model_shapes import model_shape
from jobs.preflight.resource_estimate import estimate_resources
from jobs.preflight.verl_memory import estimate_memory
from jobs.specs.settings import apply_settings
from jobs.specs.train import load_preset


@pytest.mark.slow
def test_fine_tuning_on_verl_needs_memory_for_updates_and_none_for_generation():
    # Short sequences, so that generation would be what takes most.
    settings = ["engine=verl", "algorithm.max_prompt_tokens=256", "algorithm.max_response_tokens=256"]
    spec = apply_settings(load_preset("paper-sft"), settings)
    expected = estimate_memory(model_shape(spec.model.source, spec.model.revision), spec)
    assert expected.update < expected.rollout
    needs = estimate_resources(spec)
    assert needs.memory == expected.update
    assert needs.gpu_memory is None
