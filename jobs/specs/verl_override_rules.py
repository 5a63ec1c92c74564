"""Overrides of verl's settings that are refused for every specification: code, and the environment."""

import re

_RUNS_CODE = frozenset(
    {
        "_target_", "agent_loop_config_path", "agent_loop_manager_class", "custom_async_server",
        "custom_backend_module", "custom_cls", "custom_process_fn", "custom_reward_function", "custom_sampler",
        "external_lib", "function_tool_path", "hydra", "interaction_config_path", "kv_connector_module_path",
        "logits_processors", "py_executable", "reward_loop_module_path", "reward_manager", "runtime_env",
        "sandbox_fusion", "searchpath",
        "tool_config_path", "trust_remote_code", "worker_cls", "worker_extension_cls", "worker_process_setup_hook",
    }
)  # fmt: skip
"""Settings that name a program, a class or a file that verl, vLLM or Ray then runs."""
_RESOLVER = re.compile(r"\$\{.*:", re.DOTALL)
"""A resolver of OmegaConf, such as `${oc.env:NAME}`, which could store a secret of the environment."""


def find_forbidden(override: str) -> str:
    """Return one sentence on an override that would run code or read the environment, "" if it is allowed."""
    key, _, value = override.partition("=")
    name = key.lstrip("+~")
    sections = f"{key} {value}" if "{" in value else key
    names = _RUNS_CODE & set(re.findall(r"\w+", sections))
    if names:
        return f"{name}: cannot be set, since {min(names)} makes verl run code"
    if _RESOLVER.search(override):
        return f"{name}: cannot take its value from the environment or another resolver; give the value"
    return ""
