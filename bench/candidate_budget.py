"""What a candidate budget saves and costs: how often it would have chosen the trajectory that scoring all chooses.

A run on `chains` scores every candidate. Next to it the same draws are decided once more with each budget, from what a
run under that budget would know: it learns only the entropies of candidates that it would have scored itself.

Run `python -m bench.candidate_budget`; `--short` does fewer steps.
"""

import argparse
from collections import defaultdict

import numpy as np

from bench.chains_run import open_chains_run
from bench.report import report
from exgrpo_core.step.selection import within_budget
from exgrpo_core.step_report import Selection

BUDGETS = (2, 3, 4, 6)
PRESET = "chains-exgrpo"


class BudgetedChoice:
    """Follows a run's selections with one budget."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.num_choices = self.num_agreeing = self.num_candidates = self.num_scored = 0
        self.excess_entropies: list[float] = []
        self._known: dict[int, float] = defaultdict(lambda: float("nan"))

    def follow(self, selection: Selection) -> None:
        """Decide one selection under the budget and compare it with the one that was made."""
        ids = selection.trajectory_ids.tolist()
        last = np.array([self._known[trajectory_id] for trajectory_id in ids], dtype=np.float32)
        scored = within_budget(last, self.budget)
        entropies = selection.entropies[scored]
        self._known |= zip([ids[i] for i in scored.tolist()], entropies.tolist(), strict=True)
        self.num_choices += 1
        self.num_candidates += len(ids)
        self.num_scored += scored.size
        self.num_agreeing += int(scored[np.argmin(entropies)]) == selection.chosen[0]
        self.excess_entropies.append(float(entropies.min() - selection.entropies[selection.chosen[0]]))


def main() -> int:
    """Train, follow and report; 0 whether or not the targets were met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="15 steps instead of 150")
    num_steps = 15 if parser.parse_args().short else 150
    followers = [BudgetedChoice(budget) for budget in BUDGETS]
    with open_chains_run(PRESET) as run:
        for _ in range(num_steps):
            for selection in run.step().selections:
                for follower in followers:
                    follower.follow(selection)
    print(f"{followers[0].num_choices} selections among {followers[0].num_candidates} candidates, {num_steps} steps")
    print(f"{'budget':>8}{'scored':>10}{'same choice':>14}{'entropy above the lowest, nats':>34}")
    figures: dict[str, float] = {}
    for item in followers:
        scored, agreement = item.num_scored / item.num_candidates, item.num_agreeing / item.num_choices
        excess = float(np.mean(item.excess_entropies))
        print(f"{item.budget:8}{scored:10.1%}{agreement:14.1%}{excess:34.4f}")
        figures |= {f"{item.budget}/scored_share": scored, f"{item.budget}/same_choice_share": agreement}
        figures[f"{item.budget}/excess_nats"] = excess
    report("candidate_budget", figures, {})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
