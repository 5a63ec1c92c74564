"""Specification of the verl engine: GPUs, Ray, overrides; and of the reward model of continuous rewards."""

import os
import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from exgrpo.jobs.specs.base import Positive, Spec, SpecError
from exgrpo_core.verl_plugin.settings import CLUSTER_VARIABLE

RAY_TOKEN_VARIABLE = "EXGRPO_RAY_TOKEN"
"""Environment variable with the token of a Ray cluster; it is never part of a specification."""
TEXT_AGENT_NAME = "exgrpo_text"
"""verl's name of the agent loop that decodes responses."""
CPUS_PER_GPU = 3
"""CPUs that verl requests from Ray with each GPU; without them it waits for ever."""
OTHER_CPUS = 12
"""Ray's CPUs for verl's other actors on any machine: eight for storage, the rest for control and serving."""

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
_OVERRIDE = re.compile(r"(?:\+{0,2}|~)[A-Za-z_][\w./@-]*=.*", re.DOTALL)
_SECRET = re.compile(r"TOKEN(?!IZER)|SECRET|PASSW|CREDENTIAL|(^|_)(API_?)?KEY($|_)|DATABASE_URL", re.IGNORECASE)
_PORTS_OF_RAY = frozenset({6379, 10001})
"""Of its head node and its client."""
_HTTP_ADDRESS = re.compile(r"https?://[^/\s]+.*")


def _check_override(override: str) -> str:
    if _OVERRIDE.fullmatch(override) is None:
        raise ValueError("expected KEY=VALUE, such as trainer.logger=[console]")
    key, _, value = override.partition("=")
    if names := _RUNS_CODE & set(re.findall(r"\w+", f"{key} {value}" if "{" in value else key)):
        raise ValueError(f"{key.lstrip('+~')}: cannot be set, since {min(names)} makes verl run code")
    if _RESOLVER.search(override):
        raise ValueError(f"{key.lstrip('+~')}: cannot take its value from the environment or another resolver")
    return override


def _check_variable(name: str) -> str:
    if _SECRET.search(name):
        raise ValueError("expected no secret, since the run's folder stores it; set it where the cluster is started")
    return name


def _check_address(address: str) -> str:
    if _HTTP_ADDRESS.fullmatch(address) is None or not _has_port(address):
        form = "http:// or https://, a host and, if it has one, a port from 1 to 65535"
        raise ValueError(f"expected an address of {form}, such as http://127.0.0.1:8265")
    if urlsplit(address).port in _PORTS_OF_RAY:
        raise ValueError("expected the port of Ray's dashboard, usually 8265: this one does not take jobs over HTTP")
    if "@" in urlsplit(address).netloc:
        raise ValueError("expected no user or password, since files of the workbench keep it")
    return address


def _has_port(address: str) -> bool:
    """Whether host and port, if there is one, can be parsed."""
    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


Override = Annotated[str, AfterValidator(_check_override)]
VariableName = Annotated[str, AfterValidator(_check_variable)]
HttpAddress = Annotated[str, AfterValidator(_check_address)]


def ray_cpus(num_gpus: int) -> int:
    """Return how many CPUs Ray must count for so many GPUs, whatever the machines have: it starts nothing without."""
    return CPUS_PER_GPU * num_gpus + OTHER_CPUS


class RaySpec(Spec):
    """The Ray cluster that a verl job runs on."""

    address: HttpAddress | None = None
    """Address of an existing cluster's Jobs API. None starts a local Ray that ends with the run."""
    allow_unauthenticated: bool = False
    """Use a cluster on another machine that needs no token; anyone who can reach it can run programs on it."""
    environment: dict[VariableName, str] = Field(default_factory=dict)
    """Environment variables of verl's processes; the run's folder stores them, so secrets are refused."""
    working_dir: Path | None = None
    """Folder of this project on the cluster's machines. None: the folder of this installation."""


class VerlSpec(Spec):
    """How the verl engine spreads a run over GPUs."""

    num_nodes: Positive = 1
    """Machines of the Ray cluster to use."""
    gpus_per_node: Positive = 8
    """GPUs of each machine to use; without GPUs, the number of worker processes."""
    tensor_parallel: Positive = 1
    """GPUs that share one copy of the model while generating; divides the number of GPUs."""
    generating_gpus_per_node: Positive | None = None
    """GPUs of each machine that only generate, with `algorithm.rollouts_ahead`. None: as many as train."""
    attention: Literal["flash", "sdpa"] = "flash"
    """Attention on GPUs: FlashAttention from the hub, or PyTorch's, which is slower and needs no download."""
    seeded_requests: bool = False
    """Give each request to vLLM a seed, so that a resumed run draws the same responses; sampling is slower then."""
    max_tokens_per_gpu: Positive | None = None
    """Most tokens of a micro-batch on one GPU. None: twice the longest prompt with response."""
    gpu_memory_utilization: float = Field(0.6, gt=0, lt=1)
    """Share of a GPU's memory that generation may use next to the training state; the paper's is 0.8."""
    gpu_gib: float | None = Field(None, gt=0)
    """GiB of each GPU, for checks before the start. None: those of this machine's GPUs, or 79.6 if it has none."""
    max_failed_share: float = Field(0.1, ge=0, lt=1)
    """A question is left out if its rollouts fail twice. If a step leaves out more than this share, the run ends."""
    overrides: tuple[Override, ...] = ()
    """Settings of verl's configuration, KEY=VALUE, applied last."""
    ray: RaySpec = RaySpec()

    @property
    def num_gpus(self) -> int:
        """GPUs of the whole run."""
        return self.num_nodes * self.gpus_per_node

    @property
    def joins_cluster(self) -> bool:
        """Whether the run uses a Ray cluster that is there, and no GPUs of this machine."""
        return self.ray.address is not None or CLUSTER_VARIABLE in os.environ

    @model_validator(mode="after")
    def _check_together(self) -> "VerlSpec":
        if self.num_gpus % self.tensor_parallel:
            raise SpecError(f"expected a divisor of the {self.num_gpus} GPUs.", "tensor_parallel")
        return self


class RewardModelSpec(Spec):
    """The model that scores responses when `algorithm.reward_kind` is continuous; verl serves it on separate GPUs."""

    source: str = Field(min_length=1)
    """Local folder or hub name of a reward model with one score for a conversation."""
    num_gpus: Positive = 1
    """GPUs of one machine for the reward model only, in addition to those of `verl`."""
    gpu_memory_utilization: float = Field(0.8, gt=0, lt=1)
    """Share of these GPUs' memory that it may use."""
