"""Optimizer steps on mini-batches of mixed groups, by AdamW on float32 weights, whose state goes into safetensors."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from exgrpo.jobs.specs.base import OptimSpec
from exgrpo.jobs.training.engines.embedded.model import PolicyModel
from exgrpo.jobs.training.engines.embedded.packing import TokenSequence
from exgrpo.jobs.training.engines.embedded.sampling import Scoring
from exgrpo_core.errors import EngineError
from exgrpo_core.methods.loading import ObjectiveSettings
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch, TrainingRow, rows_with_gradient
from exgrpo_core.policy_optimization.objective import (
    LossInputs,
    LossOutputs,
    MiniBatchSizes,
    UpdateSums,
    exgrpo_loss,
    merge_sums,
    pack_inputs,
    split_seen,
)
from exgrpo_core.types import Float32Array


class OptimSettings(OptimSpec):
    """Settings of AdamW, and when its learning rate ends."""

    decay_steps: int = 0
    """Optimizer steps at whose end the learning rate, falling along a cosine after warm-up, is 0; 0: it stays."""

    def learning_rate_at(self, num_done: int) -> float:
        """Return the learning rate of the optimizer step that follows `num_done` others."""
        if num_done < self.warmup_steps:
            return self.learning_rate * (num_done + 1) / self.warmup_steps
        if self.decay_steps <= self.warmup_steps:
            return self.learning_rate
        share = min(1.0, (num_done - self.warmup_steps) / (self.decay_steps - self.warmup_steps))
        return self.learning_rate * 0.5 * (1.0 + math.cos(math.pi * share))


class WeightOverflowError(EngineError):
    """Weights, or their squares, are larger than float32 holds: no later step can be taken."""


class PolicyOptimizer:
    """Takes optimizer steps on a module's trainable parameters and refuses gradients that are not finite."""

    def __init__(self, module: nn.Module, settings: OptimSettings) -> None:
        self.settings = settings
        self.num_steps = 0
        self._named = {name: value for name, value in module.named_parameters() if value.requires_grad}
        self._adam = torch.optim.AdamW(
            self._named.values(),
            lr=settings.learning_rate,
            betas=(settings.beta1, settings.beta2),
            weight_decay=settings.weight_decay,
            fused=True,
        )

    def clear_gradients(self) -> None:
        """Forget gradients."""
        self._adam.zero_grad(set_to_none=True)

    def step(self) -> float:
        """Apply the gradients and return their norm before clipping; a missing gradient counts as zero.

        Raises:
            EngineError: The norm is not finite; weights and moments are as before.
            WeightOverflowError: The step was applied, and weights are not finite or nearly so.
        """
        for parameter in self._named.values():
            if parameter.grad is None:
                # AdamW passes over parameters without a gradient; their moments must decay as with a zero one.
                parameter.grad = torch.zeros_like(parameter)
        norm = float(nn.utils.clip_grad_norm_(self._named.values(), self.settings.max_gradient_norm))
        if not torch.isfinite(torch.tensor(norm)):
            raise EngineError(f"the gradient norm is {norm}")
        for group in self._adam.param_groups:
            group["lr"] = self.settings.learning_rate_at(self.num_steps)
        self._adam.step()
        self.num_steps += 1
        if not bool(nn.utils.get_total_norm(self._named.values()).isfinite()):
            learning_rate = self.settings.learning_rate_at(self.num_steps - 1)
            raise WeightOverflowError(
                f"optimizer step {self.num_steps} (learning rate {learning_rate:g}) "
                "made weights too large for float32; branch from a checkpoint with a lower learning rate.",
                "optim.learning_rate",
            )
        return norm

    def state_tensors(self) -> dict[str, torch.Tensor]:
        """Return the moments and counters of every parameter as `name/key`."""
        return {
            f"{name}/{key}": value
            for name, parameter in self._named.items()
            for key, value in self._adam.state[parameter].items()
        }

    def load_state_tensors(self, tensors: dict[str, torch.Tensor], num_steps: int) -> None:
        """Continue from what `state_tensors` returned after `num_steps` steps.

        Raises:
            ValueError: It is not the state of these parameters; the message names the first that differs.
        """
        if type(num_steps) is not int or num_steps < 0:
            raise ValueError(f"num_optimizer_steps: expected a whole number, got {num_steps!r}")
        expected = self._state_shapes() if num_steps else {}
        for item in sorted(expected.keys() | tensors.keys()):
            value = tensors.get(item)
            if value is None or value.dtype != torch.float32 or value.shape != expected.get(item):
                found = "nothing" if value is None else f"{value.dtype} of shape {list(value.shape)}"
                raise ValueError(f"{item} is not what the optimizer keeps after {num_steps} steps: found {found}")
        self.num_steps = num_steps
        self._adam.state.clear()
        for item, value in tensors.items():
            name, _, key = item.rpartition("/")
            parameter = self._named[name]
            self._adam.state[parameter][key] = value.to(parameter.device)

    def _state_shapes(self) -> dict[str, torch.Size]:
        return {
            f"{name}/{key}": torch.Size() if key == "step" else parameter.shape
            for name, parameter in self._named.items()
            for key in ("step", "exp_avg", "exp_avg_sq")
        }


_AS_WRITTEN = Scoring(temperature=1.0, has_entropies=False)
"""Demonstrations are imitated at temperature 1: nobody sampled them."""


@dataclass
class UpdateTally(UpdateSums):
    """What one call of `PolicyUpdater.update` adds up."""

    log_prob_gaps: list[torch.Tensor] = field(default_factory=list)

    def metrics(self) -> dict[str, float]:
        """Return metrics named as in `step_report.METRICS`, with the gap between sampler and trainer."""
        metrics = super().metrics()
        gaps = torch.cat(self.log_prob_gaps) if self.log_prob_gaps else torch.empty(0)
        if gaps.numel():
            metrics["generator/log_prob_gap"] = float(gaps.mean())
            metrics["generator/log_prob_gap_max"] = float(gaps.max())
        return metrics


class PolicyUpdater:
    """Takes one optimizer step a mini-batch.

    Rows of advantage zero are left out where neither entropy bonus nor KL penalty is on, which changes no gradient;
    the `ratio/*` statistics are then of the other rows. The gap between sampler and trainer comes from the fresh rows
    of the first mini-batch: its forward pass runs before any weight changed, and their behavior log-probs are the
    sampler's. With `keeps_seen` each mini-batch gets what the loss read of its tokens, copied from the device.
    """

    def __init__(
        self,
        policy: PolicyModel,
        optimizer: PolicyOptimizer,
        temperature: float,
        reference: PolicyModel | None,
        max_tokens: int | None = None,
        keeps_seen: bool = False,
    ) -> None:
        self._policy = policy
        self._keeps_seen = keeps_seen
        self._optimizer = optimizer
        self._temperature = temperature
        self._reference = reference
        budget = policy.working_bytes // policy.backend.training_bytes_per_token
        self._max_tokens = max(1, budget if max_tokens is None else max_tokens)

    def update(self, mini_batches: Sequence[MiniBatch], objective: ObjectiveSettings) -> dict[str, float]:
        """Take the steps in order and return their metrics.

        Raises:
            EngineError: A loss or gradient is not finite and is not skipped; that mini-batch was not applied.
        """
        tally = UpdateTally(self._optimizer.settings.non_finite == "skip")
        for number, mini_batch in enumerate(mini_batches):
            try:
                self._step(mini_batch, objective, tally, is_first=number == 0)
            except WeightOverflowError:
                raise
            except EngineError as error:
                if tally.skips_non_finite:
                    tally.num_skipped += 1
                    continue
                raise EngineError(
                    f"optimizer step {self._optimizer.num_steps + 1} (mini-batch {number + 1} of {len(mini_batches)}): "
                    f"{error}, so it was not applied; branch from a checkpoint with a lower learning rate, or set "
                    "optim.non_finite: skip.",
                    "optim.learning_rate",
                ) from None
            finally:
                self._optimizer.clear_gradients()
        if self._reference is not None:
            self._reference.backend.weights_changed()  # its copies of weights take memory until the next update
        return tally.metrics()

    def imitate(self, demonstrations: Sequence[TokenSequence]) -> dict[str, float]:
        """Take one step on the mean negative log-likelihood of the demonstrations' response tokens.

        Raises:
            EngineError: The loss or gradient is not finite; the step was not applied.
        """
        num_tokens = sum(int(demonstration.token_ids.size) for demonstration in demonstrations)
        self._policy.backend.weights_changed()
        self._optimizer.clear_gradients()
        total = 0.0
        try:
            for batch in self._policy.backend.batches(demonstrations, self._max_tokens):
                scores = self._policy.backend.score([demonstrations[i] for i in batch], _AS_WRITTEN)
                loss = -scores.log_probs.sum() / num_tokens
                torch.autograd.backward(loss)
                total += float(loss.detach())
            if not np.isfinite(total):
                raise EngineError(f"the loss is {total}")
            norm = self._optimizer.step()
        except WeightOverflowError:
            raise
        except EngineError as error:
            raise EngineError(
                f"optimizer step {self._optimizer.num_steps + 1}: {error}, so it was not applied; branch from a "
                "checkpoint with a lower learning rate.",
                "optim.learning_rate",
            ) from None
        finally:
            self._optimizer.clear_gradients()
        return {"loss/sft": total, "optim/gradient_norm": norm, "optim/num_updated_tokens": float(num_tokens)}

    def _step(self, mini_batch: MiniBatch, objective: ObjectiveSettings, tally: UpdateTally, is_first: bool) -> None:
        rows = rows_with_gradient(mini_batch, objective)
        sequences = [TokenSequence(row.prompt_ids, row.token_ids) for row in rows]
        scale = MiniBatchSizes(mini_batch.num_trajectories, mini_batch.num_tokens)
        # Copies of the weights are stale after this step, and their memory is better used in it.
        self._policy.backend.weights_changed()
        self._optimizer.clear_gradients()
        batches = self._policy.backend.batches(sequences, self._max_tokens)
        all_sums, gaps = [], []
        seen_rows: list[TrainingRow] = []
        seen: list[dict[str, Float32Array]] = []
        for batch in batches:
            of_batch = [rows[i] for i in batch]
            inputs = self._loss_inputs(of_batch, [sequences[i] for i in batch], objective)
            outputs = exgrpo_loss(inputs, objective, scale)
            _check_finite(outputs)
            torch.autograd.backward(outputs.loss)
            all_sums.append(outputs.sums)
            if self._keeps_seen:
                seen_rows += of_batch
                seen += split_seen(inputs, [row.token_ids.size for row in of_batch])
            if is_first:
                gap = (inputs.log_probs.detach() - inputs.behavior_log_probs).abs()
                gaps.append(gap[~inputs.is_replayed])
        if not batches:
            nothing = torch.empty(0, device=self._policy.device)
            all_sums.append(exgrpo_loss(pack_inputs([], nothing, nothing, nothing), objective, scale).sums)
        tally.gradient_norms.append(self._optimizer.step())
        tally.sums.append(merge_sums(all_sums))
        if self._keeps_seen:
            mini_batch.keep_seen(tally.sums[-1], seen_rows, seen)
        tally.log_prob_gaps += gaps
        tally.num_tokens += sum(row.token_ids.size for row in rows)

    def _loss_inputs(
        self, rows: Sequence[TrainingRow], sequences: Sequence[TokenSequence], objective: ObjectiveSettings
    ) -> LossInputs:
        has_entropies = objective.entropy_coefficient > 0.0
        scores = self._policy.backend.score(sequences, Scoring(self._temperature, has_entropies))
        reference_log_probs = None
        if self._reference is not None and objective.kl_coefficient > 0.0:
            with torch.no_grad():
                scoring = Scoring(self._temperature, has_entropies=False)
                reference_log_probs = self._reference.backend.score(sequences, scoring).log_probs
        return pack_inputs(rows, scores.log_probs, scores.entropies, reference_log_probs)


def _check_finite(outputs: LossOutputs) -> None:
    if bool(outputs.loss.isfinite()):
        return
    faulty = [name for name in ("policy", "entropy_bonus", "kl") if not bool(outputs.sums[name].isfinite())]
    raise EngineError(f"the loss is {float(outputs.loss.detach())} (not finite: {', '.join(faulty) or 'total'})")
