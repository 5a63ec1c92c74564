"""SkyRL: `dumped_evals/global_step_N_evals` of `trainer.dump_eval_results`, a file of JSON lines for each data source.

Source: `dump_per_dataset_eval_results` of skyrl 0.3.0. A score is a number, or a list with one for each token.
`aggregated_results.jsonl` next to them has metrics and no step.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from exgrpo.jobs.runs.rollout_formats.rollout_files import bare
from exgrpo.jobs.runs.rollout_formats.row_fields import Row, extra_of, number_of, text_of
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource, Sample
from exgrpo_core.recording.rows import Message, RecordedStep, RecordedTrajectory

_OWN = ("input_prompt", "output_response", "score")
_AGGREGATED = "aggregated_results.jsonl"
_STEP = re.compile(r"global_step_(\d+)_evals")


def recognises(sample: Sample) -> bool:
    """Whether there are decoded prompts and responses with a score."""
    return any({*_OWN} <= row.keys() for row in sample.rows_of("*.jsonl"))


def read(source: RolloutSource) -> Iterator[RecordedStep]:
    """Yield the responses of each file; without a number in the folder's name they are of step 0."""
    files = (file for file in source.files(".jsonl") if bare(file).name != _AGGREGATED)
    yield from source.rollouts(files, lambda row, file: [(_step(file), _trajectory(row))])


def _step(file: Path) -> int:
    match = _STEP.fullmatch(file.parent.name)
    return int(match[1]) if match else 0


def _trajectory(row: Row) -> RecordedTrajectory:
    score = row["score"]
    extras = row.get("env_extras") or {}
    answer = (extras.get("reward_model") or extras.get("reward_spec") or {}).get("ground_truth")
    return RecordedTrajectory(
        messages=(
            Message("user", text_of(row, "input_prompt")),
            Message("assistant", text_of(row, "output_response"), is_generated=True),
        ),
        reward=number_of({"score": sum(score) if isinstance(score, list) else score}, "score"),
        answer=answer if isinstance(answer, str) else None,
        is_truncated={"length": True, "stop": False}.get(str(row.get("stop_reason"))),
        extra=extra_of(row, _OWN),
    )
