"""What the plug-in reads of verl's configuration, and what it asks of it; verl itself is not needed to read it."""

import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from exgrpo_core.config import ExGRPOConfig, LossAggregation
from exgrpo_core.errors import InputError
from exgrpo_core.methods.loading import find_mistakes

TRAINER_MODE = "exgrpo"
"""Value of `trainer.v1.trainer_mode` that turns replay on."""
SECTION = "exgrpo"
"""Section of verl's configuration with replay's fields, those of `ExGRPOConfig`."""
AGENT_NAME = "exgrpo_prompt_tokens"
"""The agent loop that generates from a question's prompt tokens."""
CLUSTER_VARIABLE = "RAY_ADDRESS"
"""Set by Ray in jobs that were submitted to a cluster; where it is set, a run joins that cluster."""
EXTERNAL_MODULES_VARIABLE = "VERL_USE_EXTERNAL_MODULES"
"""verl's own: modules that `import verl` loads, such as one that registers another platform than NVIDIA's."""
PLATFORM_VARIABLE = "VERL_PLATFORM"
"""verl's own: the name of the platform, where verl is not to find out itself."""
UNSHARED_PLATFORM = "nvidia_unshared"
UNSHARED_VARIABLES = {
    PLATFORM_VARIABLE: UNSHARED_PLATFORM,
    EXTERNAL_MODULES_VARIABLE: "exgrpo_core.verl_plugin.unshared_memory",
}
"""What has verl send weights by the host's memory, where two processes cannot share a GPU's."""
NO_STATISTICS = "VLLM_NO_USAGE_STATS"
"""Environment variable without which vLLM reports its use to its makers."""

_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"
_MODEL = "actor_rollout_ref.model"
DECIDED = {
    "batch_size": "data.train_batch_size",
    "mini_batch_size": f"{_ACTOR}.ppo_mini_batch_size",
    "rollouts_per_question": f"{_ROLLOUT}.n",
    "max_prompt_tokens": "data.max_prompt_length",
    "max_response_tokens": "data.max_response_length",
    "temperature": f"{_ROLLOUT}.temperature",
    "normalize_by_std": "algorithm.norm_adv_by_std_in_grpo",
    "loss_aggregation": f"{_ACTOR}.loss_agg_mode",
    "policy_loss_factor": f"{_ACTOR}.loss_scale_factor",
    "clip_epsilon": f"{_ACTOR}.clip_ratio_low",
    "clip_epsilon_high": f"{_ACTOR}.clip_ratio_high",
    "entropy_coefficient": f"{_ACTOR}.entropy_coeff",
    "kl_coefficient": f"{_ACTOR}.kl_loss_coef",
    "seed": "data.seed",
}
"""Fields of `ExGRPOConfig` that a setting of verl decides."""
NOT_HERE = frozenset({"mask_range", "uses_external_experience"})
"""Fields of `ExGRPOConfig` without use in verl's trainer."""
AGGREGATIONS = {
    "seq-mean-token-sum-norm": LossAggregation.MAX_LENGTH,
    "seq-mean-token-mean": LossAggregation.TOKEN_MEAN,
}
REQUIRED: dict[str, tuple[tuple[object, ...], str]] = {
    "algorithm.adv_estimator": (("grpo",), "a group of rollouts is compared"),
    "algorithm.use_kl_in_reward": ((False,), "the KL penalty is in the loss (actor.use_kl_loss)"),
    "algorithm.filter_groups.enable": ((False,), "every group is trained on"),
    "algorithm.rollout_correction.rollout_is": ((None,), "set +exgrpo.sampler_correction"),
    "algorithm.rollout_correction.rollout_rs": ((None,), "set +exgrpo.sampler_correction"),
    "algorithm.rollout_correction.bypass_mode": ((False,), "the trainer's log-probs are the denominators"),
    f"{_ACTOR}.strategy": (("fsdp", "fsdp2"), "other engines were not tried"),
    f"{_ACTOR}.policy_loss.loss_mode": (("vanilla",), "the loss is ExGRPO's"),
    f"{_ACTOR}.loss_agg_mode": (tuple(AGGREGATIONS), "a trajectory's weight does not depend on its mini-batch"),
    f"{_ACTOR}.kl_loss_type": (("low_var_kl", "k3"), "the KL penalty is the k3 estimate"),
    f"{_ACTOR}.ppo_epochs": ((1,), "each mini-batch is one optimizer step"),
    f"{_ROLLOUT}.top_p": ((1,), "importance ratios need rollouts that only temperature shapes"),
    f"{_ROLLOUT}.top_k": ((-1,), "importance ratios need rollouts that only temperature shapes"),
    f"{_ROLLOUT}.calculate_log_probs": ((True,), "the sampler's log-probs are compared with the trainer's"),
    f"{_ROLLOUT}.multi_turn.enable": ((False,), "a rollout is one response"),
    f"{_ROLLOUT}.agent.default_agent_loop": (("single_turn_agent",), "a rollout is one response"),
    f"{_MODEL}.lora_rank": ((0,), "adapters were not tried"),
    f"{_MODEL}.lora.rank": ((0,), "adapters were not tried"),
    "data.shuffle": ((True,), "fresh questions come in a random order"),
    "distillation.enabled": ((False,), "there is no teacher"),
    "trainer.default_hdfs_dir": ((None,), "the replay buffer is saved next to local checkpoints only"),
}
"""Settings of verl with the values that the plug-in works with, and why."""
SHARE = "max_failed_share"
"""Field of the section besides those of `ExGRPOConfig`: share of a step's questions whose rollouts may fail."""
RECORD_TO = "record_to"
"""Another: the folder of runs into which the run is recorded."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReplaySettings:
    """What the plug-in does in a run of verl."""

    algorithm: ExGRPOConfig
    max_failed_share: float
    seed: int | None
    """Of the requests of rollouts; None where they have none."""
    record_to: str | None = None
    """Folder of runs in which the run gets a run directory."""


def read_settings(config: Mapping[str, Any]) -> ReplaySettings:
    """Return the settings of a run from verl's whole, resolved configuration.

    Raises:
        InputError: A setting is unknown, of another type, or not one that the plug-in works with; one sentence each.
    """
    section = dict(config.get(SECTION) or {})
    share, record_to = section.pop(SHARE, 0.0), section.pop(RECORD_TO, None)
    mistakes = [*_unfit_settings(config), *_unknown_fields(section), *_unfit_servers(config, section)]
    if not (isinstance(share, int | float) and 0.0 <= share < 1.0):
        mistakes.append(f"{SECTION}.{SHARE}: expected a share in [0, 1), got {share!r}.")
    if not isinstance(record_to, str | None):
        mistakes.append(f"{SECTION}.{RECORD_TO}: expected a folder, got {record_to!r}.")
    if mistakes:
        raise InputError("\n".join(mistakes))
    fields, mistakes = _typed_fields(section)
    algorithm = None
    if not mistakes:
        try:
            algorithm = ExGRPOConfig(**(fields | _decided_fields(config)))
        except ValueError as error:
            mistakes = [_in_verls_words(line) for line in str(error).splitlines()]
        else:
            mistakes = [_in_verls_words(line) for line in find_mistakes(algorithm)]
    if algorithm is None or mistakes:
        raise InputError("\n".join(mistakes))
    rollout = config["actor_rollout_ref"]["rollout"]
    return ReplaySettings(algorithm, float(share), rollout["seed"] if rollout["full_determinism"] else None, record_to)


def _unfit_settings(config: Mapping[str, Any]) -> Iterator[str]:
    for name, (allowed, reason) in REQUIRED.items():
        value = _look_up(config, name)
        if value not in allowed:
            expected = " or ".join(map(str, allowed))
            yield f"{name}: expected {expected} where trainer_mode is {TRAINER_MODE}, got {value}, since {reason}."
    reward_model = config["reward"]["reward_model"]
    if reward_model["enable"] and not reward_model["enable_resource_pool"]:
        yield "reward.reward_model.enable_resource_pool: expected True, since rollouts are graded as they come."


def _unfit_servers(config: Mapping[str, Any], section: Mapping[str, Any]) -> Iterator[str]:
    """Rollouts are generated ahead on GPUs of their own, to which weights are sent."""
    rollout, is_ahead = config["actor_rollout_ref"]["rollout"], section.get("rollouts_ahead") is True
    where = f"where {SECTION}.rollouts_ahead is {str(is_ahead).lower()}"
    if is_ahead != (rollout["nnodes"] > 0):
        expected = "at least 1, the machines with GPUs that only generate," if is_ahead else "0"
        yield f"{_ROLLOUT}.nnodes: expected {expected} {where}, got {rollout['nnodes']}."
    if is_ahead and rollout["checkpoint_engine"]["backend"] == "naive":
        yield f"{_ROLLOUT}.checkpoint_engine.backend: expected nccl or another that sends weights {where}, got naive."


def server_mistake(config: Mapping[str, Any], installed: str) -> str:
    """Return why this trainer, of this version of verl, has no servers on GPUs of their own; "" if none are wanted."""
    num_nodes = config["actor_rollout_ref"]["rollout"]["nnodes"]
    if not num_nodes or (config["trainer"]["use_v1"] and installed not in _SERVERS_SHARE_GPUS):
        return ""
    remedy = "install verl 0.9.1" if config["trainer"]["use_v1"] else "set trainer.use_v1=True"
    return (
        f"{_ROLLOUT}.nnodes: expected 0 with this trainer of verl, got {num_nodes}, since its servers are on the GPUs "
        f"of training; {remedy}."
    )


def _unknown_fields(section: Mapping[str, Any]) -> Iterator[str]:
    known = {field.name for field in dataclasses.fields(ExGRPOConfig)} - DECIDED.keys() - NOT_HERE | {SHARE, RECORD_TO}
    for name in section:
        if name in DECIDED:
            yield f"{SECTION}.{name}: is decided by {DECIDED[name]}; set that instead."
        elif name not in known:
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f" did you mean {nearest[0]}?" if nearest else f" expected one of {', '.join(sorted(known))}."
            yield f"{SECTION}.{name}: there is no such setting;{hint}"


def _typed_fields(section: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    hints = get_type_hints(ExGRPOConfig)
    fields, mistakes = {}, []
    for name, value in section.items():
        try:
            fields[name] = _typed(value, hints[name])
        except ValueError as error:
            mistakes.append(f"{SECTION}.{name}: expected {error}, got {value!r}.")
    return fields, mistakes


def _typed(value: Any, hint: Any) -> Any:
    """Return a value of YAML as a field's type; a `ValueError` says what was expected."""
    if get_origin(hint) is dict:
        if isinstance(value, Mapping):
            return {str(name): _typed(number, float) for name, number in value.items()}
        raise ValueError("numbers by name")
    kinds = get_args(hint) or (hint,)
    for kind in kinds:
        if kind is NoneType and value is None:
            return None
        if issubclass(kind, StrEnum):
            if value in set(kind):
                return kind(value)
        elif type(value) is kind:
            return value
        elif kind is float and type(value) is int:
            return float(value)
    raise ValueError(" or ".join(_kind_in_words(kind) for kind in kinds))


def _kind_in_words(kind: type) -> str:
    if issubclass(kind, StrEnum):
        return " or ".join(kind)
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a name", NoneType: "null"}[kind]


def _decided_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that verl's settings decide; of a trajectory's loss verl knows the divisor, not the scale."""
    fields = {field: _look_up(config, name) for field, name in DECIDED.items()}
    actor = config["actor_rollout_ref"]["actor"]
    aggregation, divisor = AGGREGATIONS[fields["loss_aggregation"]], fields["policy_loss_factor"]
    is_scaled = divisor is not None and aggregation is LossAggregation.MAX_LENGTH
    return fields | {
        "loss_aggregation": aggregation,
        "policy_loss_factor": fields["max_response_tokens"] / divisor if is_scaled else 1.0,
        "kl_coefficient": fields["kl_coefficient"] if actor["use_kl_loss"] else 0.0,
        "seed": fields["seed"] or 0,
    }


def _look_up(config: Mapping[str, Any], name: str) -> Any:
    value: Any = config
    for part in name.split("."):
        value = value[part]
    return value


def _in_verls_words(mistake: str) -> str:
    field, colon, rest = mistake.partition(":")
    return f"{DECIDED.get(field, f'{SECTION}.{field}')}{colon}{rest}"


TRIED_VERSIONS = ("0.9.1",)
"""The versions of verl whose methods the trainers are known to replace and whose registries to enter."""


_SERVERS_SHARE_GPUS = ("0.9.0",)
"""The versions that have no trainer without servers on its GPUs."""


def version_notice(installed: str) -> str:
    """Return one sentence if the plug-in was never tried with this version of verl, "" if it was."""
    if installed in TRIED_VERSIONS:
        return ""
    return (
        f"verl {installed}: this plug-in was tested with {', '.join(TRIED_VERSIONS)} only; it continues, and "
        f"`make verl-compat VERL_VERSIONS={installed}` names what does not fit."
    )
