"""What `model.source` names beside folders and hub names: a GGUF file, or a package whose wheel holds one."""

import hashlib
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from exgrpo_core.errors import InputError

CACHE_VARIABLE = "EXGRPO_CACHE_DIR"
PACKAGES_FILE = Path(__file__).parent / "packages.yaml"
PACKAGE_PREFIX = "pip:"
GGUF_SUFFIX = ".gguf"
_CONVERSION = "1"
"""Part of the converted folders' names: another number converts every file again."""


class ModelSourceError(InputError, ValueError):
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
        raise ModelSourceError(f"model.source: expected a package on the list ({known}), got {source!r}.")
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
        raise ModelSourceError(f"model.source: {source} cannot be read ({error.strerror}).") from None
    return _folder(path.stem, str(path.resolve()), str(state.st_size), str(state.st_mtime_ns))


def _folder(name: str, *content: str) -> Path:
    digest = hashlib.sha256("\0".join((_CONVERSION, *content)).encode()).hexdigest()[:16]
    return cache_directory() / f"{name}-{digest}"
