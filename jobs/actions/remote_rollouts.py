"""Rollouts at an address, `hf://datasets/OWNER/NAME/FOLDER` or `s3://BUCKET/FOLDER`, copied into the cache."""

import hashlib
import re
import shutil
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from exgrpo.jobs.actions.view_roots import cache_folder
from exgrpo.jobs.runs.rollout_formats.formats import MissingPackageError, UnknownRolloutsError
from exgrpo_core.errors import first_line

_PACKAGES = {"hf": "huggingface-hub", "s3": "s3fs"}
_ADDRESS = re.compile(r"([a-z][a-z0-9+]*)://.+")


def is_address(text: str) -> bool:
    """Whether a text is an address instead of a path."""
    return _ADDRESS.fullmatch(text) is not None


def copy_rollouts(address: str, folder: Path | None = None) -> Path:
    """Return a copy in a folder, by default one of the cache, of the file or folder at an address.

    It takes the place of an earlier copy once it is whole.

    Raises:
        MissingPackageError: The package that reads such addresses is not installed.
        UnknownRolloutsError: The address has another scheme or cannot be read.
    """
    scheme = address.partition("://")[0]
    if scheme not in _PACKAGES:
        raise UnknownRolloutsError(f"{address}: expected a path, or an address with hf:// or s3://.")
    try:
        import fsspec

        files, place = fsspec.url_to_fs(address)
    except ImportError:
        needs = f"fsspec {_PACKAGES[scheme]}"
        raise MissingPackageError(f"{address}: needs packages that read it; run `pip install {needs}`.") from None
    except (OSError, ValueError) as error:
        raise UnknownRolloutsError(f"{address}: {first_line(error)}") from None
    folder = folder or cache_folder().with_name("copies") / hashlib.sha256(address.encode()).hexdigest()[:16]
    inner = PurePosixPath(*PurePosixPath(place).parts[-2:])
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as new:
            found = {name: Path(new) / inner / PurePosixPath(name).relative_to(place) for name in files.find(place)}
            if not found:
                raise FileNotFoundError("there are no files")
            for name, path in found.items():
                if ".." in path.parts:
                    raise ValueError(f"{name} leads out of the folder")
                path.parent.mkdir(parents=True, exist_ok=True)
                files.get_file(name, str(path))
            shutil.rmtree(folder, ignore_errors=True)
            Path(new).rename(folder)
    except Exception as error:  # noqa: BLE001 - each file system raises its own
        why = first_line(error) or type(error).__name__
        raise UnknownRolloutsError(
            f"{address}: cannot be read ({why}); check the address and your access to it."
        ) from None
    return folder / inner
