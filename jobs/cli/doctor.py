"""Checks of this machine: what is missing for which kind of work, and what to do."""

import fcntl
import importlib.util
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from exgrpo.jobs.cli.options import (
    DEFAULT_PORT,
    DEFAULT_RUNS_ROOT,
    EXIT_FAILURE,
    AsJson,
    DatabaseUrl,
    RunsRoot,
    print_json,
    print_result,
)
from exgrpo.jobs.cli.workbench import read_workbench
from exgrpo.jobs.execution.supervisor.indexing import describe_database
from exgrpo.jobs.machine.engine_environments import (
    GPU_PINS,
    EngineEnvironmentError,
    Pins,
    describe_missing_package,
    engine_python,
    installed_versions,
    verl_pins,
)
from exgrpo.jobs.machine.gpu_needs import needs_of
from exgrpo.jobs.machine.hardware import GIB, MIN_FREE_GIB, list_gpus
from exgrpo.jobs.machine.machine_report import Check, CheckResult
from exgrpo.jobs.machine.memory_sharing import probe_sharing
from exgrpo.jobs.runs.attempts import read_heartbeat
from exgrpo.jobs.runs.directory import RunDirectory, list_unreadable
from exgrpo.jobs.runs.lookup import find_run_id
from exgrpo.jobs.runs.processes import read_stacks
from exgrpo.jobs.runs.state import read_supervisor
from exgrpo_core.durable_files import cause_of, remedy_of
from exgrpo_core.verl_plugin.attention_kernel import KERNEL
from exgrpo_core.verl_plugin.settings import version_notice

MIN_USABLE_GIB = 0.2
"""With less, the disk is soon too full for the database and a run's first records."""
_PROBE_BYTES = 64 * 1024
VERL_CHECK = "verl engine"
_MARKS = {"ok": "ok  ", "warning": "note", "failure": "FAIL"}


def doctor(
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    port: Annotated[int, typer.Option(help="Port of the workbench.", min=0, max=65535)] = DEFAULT_PORT,
    stuck_run: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="Only show what the processes of a run wait for, with their stacks."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check what this machine can run. Looks at GPU, verl, vLLM, database, ports and disk."""
    if stuck_run is not None:
        _show_processes(RunDirectory.open(runs_root, find_run_id(runs_root, stuck_run)), as_json=as_json)
        return
    checks = examine(runs_root, database_url, port)
    if as_json:
        print_json(checks)
    else:
        for check in checks:
            advice = f" - {check.advice}" if check.advice else ""
            typer.echo(f"{_MARKS[check.result]} {check.name:<11} {check.detail}{advice}")
    if any(check.result is CheckResult.FAILURE for check in checks):
        raise typer.Exit(EXIT_FAILURE)


def _show_processes(run: RunDirectory, *, as_json: bool) -> None:
    """Print the processes of a run's newest attempt on this machine: what each waits for, its sockets and stacks."""
    attempt_path = run.attempt_path(run.newest_attempt())
    processes = read_stacks(attempt_path)
    if as_json:
        print_json(processes)
        return
    heartbeat = read_heartbeat(attempt_path)
    if heartbeat is not None:
        seconds = (datetime.now(UTC) - heartbeat.at).total_seconds()
        doing = f", {heartbeat.phase}" if heartbeat.phase else ""
        print_result(f"{run.run_id}: {heartbeat.status}, step {heartbeat.step}{doing}; heartbeat {seconds:.0f} s ago")
    if not processes:
        print_result(
            f"{run.run_id}: no process of it runs on this machine; on a cluster, ask on the machine that has it. "
            "If it belongs to another user, run this as that user or as root."
        )
    for process in processes:
        print_result(f"{process.pid} {process.command}")
        print_result(f"  waits for: {process.waits_for or 'unknown'}")
        for connection in process.sockets:
            print_result(f"  socket: {connection}")
        for line in process.stacks.splitlines():
            print_result(f"  | {line}")


def examine(runs_root: Path, database_url: str | None, port: int) -> list[Check]:
    """Run every check; a check never raises, and changes nothing."""
    checks: list[tuple[str, Callable[[], Check]]] = [
        ("Python", check_python),
        ("PyTorch", check_torch),
        ("GPU", check_gpu),
        *([("GPU memory", check_memory_sharing)] if list_gpus() else []),
        (VERL_CHECK, check_verl),
        ("runs root", lambda: check_runs_root(runs_root)),
        ("disk", lambda: check_disk(runs_root)),
        ("temporary", check_temporary_folder),
        ("database", lambda: check_database(database_url, runs_root)),
        ("port", lambda: check_port(port, runs_root)),
        ("supervisor", lambda: check_supervisor(runs_root)),
    ]
    return [_guarded(name, check) for name, check in checks]


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - any error of a broken installation is the finding
        return Check(name, CheckResult.FAILURE, f"{type(error).__name__}: {error}", "Reinstall what this names.")


def check_python() -> Check:
    """Python 3.11 to 3.14."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    is_good = (3, 11) <= sys.version_info[:2] < (3, 15)
    advice = "" if is_good else "Install Python 3.11 to 3.14 and create the environment again."
    return Check("Python", CheckResult.OK if is_good else CheckResult.FAILURE, version, advice)


def check_torch() -> Check:
    """PyTorch can be imported."""
    if importlib.util.find_spec("torch") is None:
        return Check("PyTorch", CheckResult.WARNING, "not installed", describe_missing_package("torch"))
    import torch

    return Check("PyTorch", CheckResult.OK, f"{torch.__version__}, {os.cpu_count()} cores")


def check_gpu() -> Check:
    """A CUDA device that PyTorch sees."""
    if importlib.util.find_spec("torch") is None:
        return Check("GPU", CheckResult.WARNING, "unknown without PyTorch", "The pages need none.")
    import torch

    if not torch.cuda.is_available():
        has_driver = shutil.which("nvidia-smi") is not None
        advice = "Install a CUDA build of PyTorch." if has_driver else "Small models run on the CPU without one."
        return Check("GPU", CheckResult.WARNING, "PyTorch finds none", advice)
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return Check("GPU", CheckResult.OK, ", ".join(names))


def check_memory_sharing() -> Check:
    """Two processes can share a GPU's memory, through which verl gives weights to vLLM; takes about ten seconds."""
    try:
        python = engine_python("verl")
    except EngineEnvironmentError:
        python = sys.executable
    sharing = probe_sharing(python)
    if sharing.works:
        return Check("GPU memory", CheckResult.OK, "two processes can share it")
    if sharing.works is None:
        return Check("GPU memory", CheckResult.OK, f"sharing was not tried: {sharing.detail}")
    advice = (
        "Runs of the verl engine send weights through /dev/shm, which is slower. In a container take the host's pid "
        "and ipc namespaces: --pid=host --ipc=host."
    )
    return Check("GPU memory", CheckResult.WARNING, f"two processes cannot share it ({sharing.detail})", advice)


def check_verl() -> Check:
    """The verl engine's environment has the versions in its constraints file."""
    try:
        python = engine_python("verl")
        installed = installed_versions(python)
    except EngineEnvironmentError as error:
        return Check(VERL_CHECK, CheckResult.WARNING, "no environment", f"Needed for many GPUs only: {error}")
    versions = ", ".join(f"{name} {version or 'missing'}" for name, version in installed.items())
    pins = verl_pins()
    notice = version_notice(installed["verl"]) if installed["verl"] else ""
    compared = {name: version for name, version in installed.items() if not (notice and name == "verl")}
    differences = min((pin.differences(compared) for pin in pins), key=len, default=[])
    if not differences and notice:
        return Check(VERL_CHECK, CheckResult.WARNING, versions, notice)
    if not differences and installed["verl"] is not None:
        return _check_gpu_needs(f"{versions} ({python})", python, installed, pins)
    names = " or ".join(pin.name for pin in pins) or "constraints-verl-*.txt"
    advice = f"Create it again with `make verl-env` ({names}): {'; '.join(differences) or 'verl is missing'}."
    return Check(VERL_CHECK, CheckResult.WARNING, versions, advice)


def _check_gpu_needs(detail: str, python: str, installed: Mapping[str, str | None], pins: list[Pins]) -> Check:
    """What else an environment of the GPU pins needs of the machine: a compiler, headers, the attention kernel."""
    is_for_gpus = any(pin.name == GPU_PINS and not pin.differences(installed) for pin in pins)
    needs = needs_of(python) if is_for_gpus else None
    problems = needs.problems("flash") if needs else []
    if not problems:
        kernel = f", {KERNEL} at {needs.kernel}" if needs else ""
        return Check(VERL_CHECK, CheckResult.OK, f"{detail}{kernel}")
    return Check(VERL_CHECK, CheckResult.WARNING, detail, f"{'; '.join(problems)}.")


def check_runs_root(runs_root: Path) -> Check:
    """The runs root can be written, or created, and its file system has locks."""
    folder = _existing(runs_root)
    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".doctor-") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(bytes(_PROBE_BYTES))
            file.flush()
    except OSError as error:
        remedy = remedy_of(error) or "choose another folder"
        advice = f"{remedy[0].upper()}{remedy[1:]}: --runs-root or EXGRPO_RUNS_ROOT."
        return Check("runs root", CheckResult.FAILURE, f"{folder}: {cause_of(error)}", advice)
    if unreadable := list_unreadable(runs_root):
        detail = "; ".join(f"{runs_root / name}: {why}" for name, why in unreadable.items())
        return Check(
            "runs root",
            CheckResult.WARNING,
            detail,
            "Let this user read them, as by chown: what is in them is not shown.",
        )
    if runs_root.exists() and runs_root.stat().st_mode & 0o002:
        detail = f"{runs_root}: every user of this machine can write there"
        return Check("runs root", CheckResult.WARNING, detail, f"Take that right away: chmod o-w {runs_root}")
    detail = str(runs_root) if runs_root.exists() else f"{runs_root}, not created yet; the first run creates it"
    return Check("runs root", CheckResult.OK, detail)


def check_disk(runs_root: Path) -> Check:
    """Free space on the file system of the runs."""
    folder = _existing(runs_root)
    free = shutil.disk_usage(folder).free / GIB
    if free >= MIN_FREE_GIB:
        return Check("disk", CheckResult.OK, f"{free:.0f} GiB free")
    result = CheckResult.WARNING if free >= MIN_USABLE_GIB else CheckResult.FAILURE
    advice = f"A run needs up to 20 GB; free some space or choose another runs root (at least {MIN_FREE_GIB:.0f} GiB)."
    return Check("disk", result, f"{free:.2f} GiB free at {folder}", advice)


def _existing(path: Path) -> Path:
    absolute = path.absolute()
    return next(folder for folder in (absolute, *absolute.parents) if folder.is_dir())


def check_temporary_folder() -> Check:
    """Python has a folder for temporary files that can be written to."""
    try:
        folder = tempfile.gettempdir()
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
    except OSError as error:
        advice = "Free some space there, or name a folder that can be written in TMPDIR."
        return Check("temporary", CheckResult.FAILURE, error.strerror or str(error), advice)
    return Check("temporary", CheckResult.OK, folder)


def check_database(database_url: str | None, runs_root: Path) -> Check:
    """The database opens."""
    is_good, detail = describe_database(database_url, runs_root)
    advice = "" if is_good else "Check EXGRPO_DATABASE_URL, or run `exgrpo db rebuild`."
    return Check("database", CheckResult.OK if is_good else CheckResult.FAILURE, detail, advice)


def check_port(port: int, runs_root: Path) -> Check:
    """The port of the pages is free, or held by the workbench of this runs root."""
    workbench = read_workbench(runs_root)
    if workbench is not None and urlsplit(workbench.address).port == port:
        return Check("port", CheckResult.OK, f"{port} is used by this runs root's workbench (pid {workbench.pid})")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except PermissionError:
            advice = "Ports below 1024 are the administrator's; choose another: `exgrpo up --port N`."
            return Check("port", CheckResult.WARNING, f"{port} may not be opened by this user", advice)
        except OSError:
            advice = "Another program has it; choose another: `exgrpo up --port N`."
            return Check("port", CheckResult.WARNING, f"{port} is in use", advice)
    there = f"; this runs root's workbench has {urlsplit(workbench.address).port}" if workbench else ""
    return Check("port", CheckResult.OK, f"{port} on 127.0.0.1, free for `exgrpo up`{there}")


def check_supervisor(runs_root: Path) -> Check:
    """Whether a supervisor runs for this runs root."""
    supervisor = read_supervisor(runs_root)
    if supervisor is not None:
        return Check("supervisor", CheckResult.OK, f"runs (pid {supervisor.pid})")
    return Check("supervisor", CheckResult.OK, "none is running", "`exgrpo up` starts one; `exgrpo train` needs none.")
