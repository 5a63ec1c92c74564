"""What ExGRPO adds to an on-policy step: scoring candidates, and managing experience.

Run `python -m bench.exgrpo_overhead`. Steps of both methods alternate, so that they see the same machine. Scoring is
compared with a bare forward of the same packed tokens, in the same step: the decoder and its output embedding, no
log-probs, no entropies, nothing unpacked.
"""

import argparse
import dataclasses
import gc
import time
from collections.abc import Sequence

import numpy as np
import torch

from bench.chains_run import ChainsRun, open_chains_run
from bench.report import report
from exgrpo.jobs.training.engines.embedded.backend import PackedAttention
from exgrpo.jobs.training.engines.embedded.decoder import Decoder
from exgrpo.jobs.training.engines.embedded.engine import EmbeddedEngine
from exgrpo.jobs.training.engines.embedded.packing import TokenSequence, pack_sequences
from exgrpo_core.engine import RolloutRequest
from exgrpo_core.methods.loading import ObjectiveSettings
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch
from exgrpo_core.types import Experience, Question, RolloutGroup, TrajectoryScores

NUM_WARM_STEPS, NUM_WARM_STEPS_SHORT = 30, 6
"""Steps before the timed ones, in which the buffer fills."""
TARGETS = {"score_over_forward": "<= 1.1", "manage_share": "<= 0.02"}


@dataclasses.dataclass(slots=True)
class StepTimes:
    """Seconds of one ExGRPO step; `forward` is the bare forward, which is not in the step's seconds."""

    step: float
    score: float
    forward: float
    manage: float
    update: float
    rollout: float


class ScoreTimer:
    """A policy engine that passes everything on and times scoring next to a bare forward over the same tokens."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self._engine = engine
        self._decoder = Decoder(engine.policy.model, torch.float32)
        self.score_seconds = self.forward_seconds = 0.0
        self._is_forward_first = False

    def rollout(self, requests: Sequence[RolloutRequest]) -> list[RolloutGroup]:
        """Pass on."""
        return self._engine.rollout(requests)

    def update(self, mini_batches: Sequence[MiniBatch], objective: ObjectiveSettings) -> dict[str, float]:
        """Pass on."""
        return self._engine.update(mini_batches, objective)

    def entropies(self, questions: Sequence[Question], candidates: Sequence[Experience]) -> TrajectoryScores:
        """Score, and run the bare forward in turn before and after it: the second finds the tokens in the caches."""
        self._is_forward_first = not self._is_forward_first
        if self._is_forward_first:
            self.forward_seconds = self._time_forward(questions, candidates)
        began_at = time.perf_counter()
        scores = self._engine.entropies(questions, candidates)
        self.score_seconds = time.perf_counter() - began_at
        if not self._is_forward_first:
            self.forward_seconds = self._time_forward(questions, candidates)
        return scores

    def _time_forward(self, questions: Sequence[Question], candidates: Sequence[Experience]) -> float:
        sequences = [
            TokenSequence(question.prompt_ids, candidate.token_ids)
            for question, candidate in zip(questions, candidates, strict=True)
        ]
        return time_forward(self._decoder, sequences)


def time_forward(decoder: Decoder, sequences: Sequence[TokenSequence]) -> float:
    """Return the seconds of a bare forward over the packed sequences, up to the logits of their responses.

    Weights are fused again, as scoring does after an update.
    """
    packed = pack_sequences(sequences, torch.device("cpu"))
    decoder.prepare_positions(packed.longest)
    decoder.weights_changed()
    with torch.inference_mode():
        began_at = time.perf_counter()
        attend = PackedAttention(packed, decoder.shape, decoder.compute_dtype)
        hidden = decoder.run(packed.input_ids, packed.positions, attend, packed.predictors)
        decoder.logits(decoder.final_norm(hidden))
        return time.perf_counter() - began_at


def time_steps(
    on_policy: ChainsRun, exgrpo: ChainsRun, num_warm: int, num_steps: int
) -> tuple[list[float], list[StepTimes]]:
    """Return seconds of on-policy steps, and the parts of ExGRPO's, alternating."""
    timer = ScoreTimer(exgrpo.engine)
    plain: list[float] = []
    times: list[StepTimes] = []
    for number in range(num_warm + num_steps):
        if number == num_warm:
            gc.collect()
            gc.freeze()
        plain_seconds = on_policy.step().metrics["seconds/step"]
        timer.score_seconds = timer.forward_seconds = 0.0
        metrics = exgrpo.step(timer).metrics
        if number < num_warm:
            continue
        plain.append(plain_seconds)
        times.append(
            StepTimes(
                step=metrics["seconds/step"] - timer.forward_seconds,
                score=timer.score_seconds,
                forward=timer.forward_seconds,
                manage=metrics["seconds/other"],
                update=metrics["seconds/update"],
                rollout=metrics["seconds/rollout"],
            )
        )
    return plain, times


def main() -> None:
    """Time the steps and print the table and the last line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=50, help="timed steps of each method")
    parser.add_argument("--short", action="store_true", help="3 timed steps after few")
    arguments = parser.parse_args()
    num_warm, num_steps = (NUM_WARM_STEPS_SHORT, 3) if arguments.short else (NUM_WARM_STEPS, arguments.steps)
    with open_chains_run("chains-on-policy") as on_policy, open_chains_run("chains-exgrpo") as exgrpo:
        plain, times = time_steps(on_policy, exgrpo, num_warm, num_steps)
        num_stored = exgrpo.state.replay_buffer.num_trajectories
    names = [field.name for field in dataclasses.fields(StepTimes)]
    parts = {name: float(np.median([getattr(item, name) for item in times])) for name in names}
    print(f"median of {num_steps} steps, {num_stored} trajectories in the buffer at the end")
    for name, seconds in parts.items():
        print(f"  ExGRPO {name:<10} {1e3 * seconds:8.2f} ms")
    print(f"  on-policy step    {1e3 * np.median(plain):8.2f} ms")
    figures = {
        "num_steps": num_steps,
        "on_policy_step_ms": 1e3 * float(np.median(plain)),
        **{f"exgrpo_{name}_ms": 1e3 * seconds for name, seconds in parts.items()},
        "step_ratio": parts["step"] / float(np.median(plain)),
        "score_over_forward": float(np.median([entry.score / entry.forward for entry in times if entry.forward])),
        "manage_share": float(np.median([value.manage / value.step for value in times])),
    }
    report("exgrpo_overhead", figures, TARGETS)


if __name__ == "__main__":
    main()
