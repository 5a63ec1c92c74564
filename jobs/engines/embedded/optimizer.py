"""AdamW on float32 weights, with warm-up, gradient clipping and a state that goes into safetensors."""

import math
from dataclasses import dataclass

import torch
from torch import nn

from exgrpo_core.errors import EngineError


@dataclass(frozen=True, slots=True)
class OptimSettings:
    """Settings of AdamW."""

    learning_rate: float
    """Step size after warm-up. Above 0."""
    weight_decay: float = 0.0
    """Decoupled weight decay. At least 0."""
    betas: tuple[float, float] = (0.9, 0.99)
    """Decay of the running mean and variance of the gradient, each in [0, 1)."""
    max_gradient_norm: float = 1.0
    """Gradients are scaled down to this norm. Above 0."""
    warmup_steps: int = 0
    """Optimizer steps over which the learning rate rises linearly to its value."""
    decay_steps: int = 0
    """Optimizer steps at whose end the learning rate, falling along a cosine after warm-up, is 0; 0: it stays."""
    skips_non_finite: bool = False
    """Leave out mini-batches whose loss or gradient is not finite, and count them, instead of raising."""

    def learning_rate_at(self, num_done: int) -> float:
        """Return the learning rate of the optimizer step that follows `num_done` others."""
        if num_done < self.warmup_steps:
            return self.learning_rate * (num_done + 1) / self.warmup_steps
        if self.decay_steps <= self.warmup_steps:
            return self.learning_rate
        share = min(1.0, (num_done - self.warmup_steps) / (self.decay_steps - self.warmup_steps))
        return self.learning_rate * 0.5 * (1.0 + math.cos(math.pi * share))


class PolicyOptimizer:
    """Takes optimizer steps on a module's trainable parameters and refuses gradients that are not finite."""

    def __init__(self, module: nn.Module, settings: OptimSettings) -> None:
        self.settings = settings
        self.num_steps = 0
        self._named = {name: value for name, value in module.named_parameters() if value.requires_grad}
        self._adam = torch.optim.AdamW(
            self._named.values(),
            lr=settings.learning_rate,
            betas=settings.betas,
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
        """Return the shape of each tensor of `state_tensors` after a step."""
        return {
            f"{name}/{key}": torch.Size() if key == "step" else parameter.shape
            for name, parameter in self._named.items()
            for key in ("step", "exp_avg", "exp_avg_sq")
        }
