"""The metrics of one update, of any engine."""

from dataclasses import dataclass, field

import torch

from exgrpo_core.policy_optimization.objective import summarize_sums


@dataclass
class UpdateSums:
    """What the mini-batches of one update add up, each with one gradient norm unless it is skipped."""

    skips_non_finite: bool = False
    num_skipped: int = 0
    sums: list[dict[str, torch.Tensor]] = field(default_factory=list)
    gradient_norms: list[float] = field(default_factory=list)
    num_tokens: int = 0

    def metrics(self) -> dict[str, float]:
        """Return metrics named as in `step_report.METRICS`; of skipped mini-batches their number alone."""
        skipped = {"optim/num_skipped": float(self.num_skipped)} if self.skips_non_finite else {}
        if not self.gradient_norms:
            return skipped
        metrics = skipped | summarize_sums(self.sums, len(self.gradient_norms))
        metrics["optim/gradient_norm"] = sum(self.gradient_norms) / len(self.gradient_norms)
        metrics["optim/num_updated_tokens"] = float(self.num_tokens)
        return metrics
