"""The replay methods that are shipped, each as the settings that choose it."""

from typing import Any

from exgrpo_core.config import Clipping, LogProbRefresh, RetiredRule, ZeroCorrectRule

GRPO: dict[str, Any] = {
    "retired": RetiredRule.NEVER, "off_policy_correction": "clip", "clipping": Clipping.ALWAYS,
    "normalize_by_std": True,
}  # fmt: skip
METHODS: dict[str, dict[str, Any]] = {
    "exgrpo": {},
    "exgrpo_released": {
        "question_selection": "exgrpo_released",
        "trajectory_selection": "lowest_total_entropy",
        "zero_correct": ZeroCorrectRule.KEEP_BUCKET,
    },
    "repo": GRPO
    | {
        "question_selection": "repo", "trajectory_selection": "highest_variance", "replays_per_group": 3,
        "experience_ratio": 1.0, "strategy_settings": {"min_stored": 4.0, "max_stored": 6.0},
    },
    "trl_replay": GRPO | {"question_selection": "trl_replay", "experience_ratio": 1.0},
    "trinity": GRPO | {"question_selection": "trinity", "strategy_settings": {"decay": 0.5, "cooldown_steps": 2.0}},
    "prioritized_proportional": {"question_selection": "prioritized_proportional", "trajectory_selection": "random"},
    "prioritized_rank": {"question_selection": "prioritized_rank", "trajectory_selection": "newest"},
    "dapo": GRPO | {"question_selection": "dapo", "experience_ratio": 0.0, "clip_epsilon_high": 0.28},
    "fifo": GRPO | {"question_selection": "fifo", "strategy_settings": {"capacity": 8.0}},
    "fresh_per": {"question_selection": "fresh_per", "trajectory_selection": "random"},
    "prompt_replay": GRPO | {"question_selection": "prompt_replay", "strategy_settings": {"cooldown_steps": 1.0}},
    "rlep": GRPO | {"question_selection": "rlep", "trajectory_selection": "random", "replays_per_group": 2},
    "vcrl": GRPO | {"question_selection": "vcrl", "strategy_settings": {"variance_threshold": 0.8}},
    "rollout_level": GRPO | {"question_selection": "rollout_level", "strategy_settings": {"max_age": 3.0}},
    "m2po": {"off_policy_correction": "m2po", "strategy_settings": {"moment_limit": 0.0002}},
    "p3o": {"off_policy_correction": "p3o"},
    "a2r": {"question_selection": "a2r", "off_policy_correction": "policy_divergence"},
    "repair_window": GRPO | {"question_selection": "repair_window", "strategy_settings": {"review_delay": 1.0}},
    "bapo": GRPO | {"question_selection": "bapo", "strategy_settings": {"most_rate": 0.75}},
    "nexgrpo": GRPO
    | {
        "question_selection": "nexgrpo", "trajectory_selection": "boundary_failure", "replays_per_group": 2,
        "strategy_settings": {"max_stored": 6.0},
    },
    "retrospective": GRPO | {"question_selection": "retrospective", "strategy_settings": {"hard_rate": 0.75}},
    "dyjr": GRPO | {"question_selection": "dyjr", "off_policy_correction": "jensen_shannon"},
    "dyjr_three": GRPO
    | {"question_selection": "dyjr", "off_policy_correction": "jensen_shannon", "replays_per_group": 3},
    "limited": {"buffer_capacity": 12, "buffer_age": 5},
    "limited groups": GRPO | {"question_selection": "trinity", "buffer_capacity": 40},
    "reviewed": {"review_interval": 3, "start_pass_rate": 0.3, "trajectory_selection": "random"},
    "refreshed on replay": {"refresh": LogProbRefresh.ON_REPLAY},
    "refreshed on duplicates": {"refresh": LogProbRefresh.ON_DUPLICATE},
    "two at a time, masked": {"replays_per_group": 2, "off_policy_correction": "masked"},
    "cispo": {"fresh_objective": "cispo", "clipping": Clipping.ALWAYS, "off_policy_correction": "truncated"},
    "supervised": {"fresh_objective": "supervised", "clipping": Clipping.ALWAYS, "off_policy_correction": "supervised"},
    "gspo": {"fresh_objective": "gspo", "clipping": Clipping.ALWAYS, "off_policy_correction": "gspo"},
}  # fmt: skip

WITHOUT_TRAJECTORIES = {"dapo", "prompt_replay", "vcrl", "repair_window", "retrospective"}
"""Methods that replay no trajectory."""
