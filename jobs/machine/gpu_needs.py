"""What training on GPUs needs of a machine besides Python packages: driver, compiler, Python's headers, a kernel.

`python -m exgrpo.jobs.machine.gpu_needs`, in verl's environment, prints what is there as JSON; with `fetch` it
downloads the kernel into the cache of the Hugging Face hub and loads it.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import asdict, dataclass
from pathlib import Path

from exgrpo.jobs.machine.engine_environments import PROJECT_ROOT, EngineEnvironmentError
from exgrpo.jobs.machine.hardware import driver_cuda
from exgrpo_core.verl_plugin.attention_kernel import KERNEL, REVISION, cached_kernel

FETCH_COMMAND = ".venv-verl/bin/python -m exgrpo.jobs.machine.gpu_needs fetch"
COMPILERS = ("cc", "gcc", "clang")
_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class GpuNeeds:
    """What a machine lacks to train on its GPUs."""

    missing_packages: tuple[str, ...]
    """System packages by their names in Debian and Ubuntu; Triton compiles with them while a run trains."""
    kernel: str | None
    """Commit of the kernel of `verl.attention: flash` that is in the hub's cache, for this version of torch."""
    cuda: str | None = None
    """Version of CUDA that torch is built for; None of a build for the CPU, or where torch is missing."""

    def problems(self, attention: str) -> list[str]:
        """Return a sentence with the remedy for each thing that training with this attention would miss."""
        problems = []
        driver = driver_cuda()
        # Of one major version, newer minor ones run on older drivers.
        if self.cuda is not None and driver is not None and _major(self.cuda) > _major(driver):
            problems.append(f"the NVIDIA driver is for CUDA {driver} and torch for {self.cuda}; install a newer driver")
        if self.missing_packages:
            names = " ".join(self.missing_packages)
            problems.append(f"the system packages {names} are missing, with which Triton compiles; install them")
        if attention == "flash" and self.kernel is None:
            problems.append(
                f"verl.attention: the kernel {KERNEL} is not on the machine; fetch it with `{FETCH_COMMAND}`, or set "
                "verl.attention to sdpa, which needs no download and is slower"
            )
        return problems


def read_needs() -> GpuNeeds:
    """Return what this interpreter and its machine lack; reads files only."""
    snapshot = cached_kernel()
    return GpuNeeds(tuple(missing_packages()), snapshot.name if snapshot else None, torch_cuda())


def torch_cuda() -> str | None:
    """Return the version of CUDA that torch is built for, without importing it."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    version_file = Path(found.origin).with_name("version.py")
    cuda = re.search(r"^cuda\b.*= '([\d.]+)'", version_file.read_text(encoding="utf-8"), re.MULTILINE)
    return cuda[1] if cuda else None


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def missing_packages() -> list[str]:
    """Return the system packages that are missing: a C compiler, and the headers of this Python."""
    missing = [] if any(map(shutil.which, COMPILERS)) else ["gcc"]
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        missing.append(f"python{sys.version_info.major}.{sys.version_info.minor}-dev")
    return missing


def needs_of(python: str) -> GpuNeeds:
    """Return what another interpreter and this machine lack.

    Raises:
        EngineEnvironmentError: It does not run.
    """
    environment = dict(os.environ) | {"PYTHONPATH": str(PROJECT_ROOT)}
    command = [python, "-P", "-m", "exgrpo.jobs.machine.gpu_needs"]
    try:
        program = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_SECONDS, env=environment, check=True)
        needs = json.loads(program.stdout)
        return GpuNeeds(tuple(needs["missing_packages"]), needs["kernel"], needs["cuda"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        raise EngineEnvironmentError(
            f"{python}: does not run ({type(error).__name__}); run `make verl-env GPU=1` again."
        ) from None


def fetch() -> str:
    """Download the kernel and load it; return one sentence on why that failed, "" if it did not."""
    try:
        from kernels import get_kernel

        get_kernel(KERNEL, revision=REVISION)
    except Exception as error:  # noqa: BLE001 - the hub, the download and the loaded code raise errors of any kind
        reason = " ".join(str(error).split()) or type(error).__name__
        return (
            f"{KERNEL}: could not be fetched ({reason}); try `{FETCH_COMMAND}` again where the hub can be reached, or "
            "set verl.attention to sdpa."
        )
    return ""


def main(arguments: list[str]) -> int:
    """Print what is missing, or fetch the kernel."""
    if arguments != ["fetch"]:
        sys.stdout.write(json.dumps(asdict(read_needs())) + "\n")
        return 0
    problem = fetch()
    sys.stdout.write(f"{problem or f'{KERNEL} is ready.'}\n")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
