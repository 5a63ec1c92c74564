"""Prints the licences of the packages of a lock file, as the installed packages themselves name them.

`make licences` writes docs/licences.csv with it. Run it with the interpreter of the environment that holds the
packages. NVIDIA's libraries, which a CUDA build of PyTorch brings, come under NVIDIA's own terms and are not listed.
"""

import csv
import re
import sys
import tomllib
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
_PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", re.MULTILINE)
_NAME = re.compile(r"^[A-Za-z0-9][\w.-]*")
_MAX_LENGTH = 60


def normal(name: str) -> str:
    """Return the name by which packages are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def direct_dependencies(*extras: str) -> set[str]:
    """Return the names that pyproject.toml asks for itself, with those of its extras that are named."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
    names = (match[0] for group in groups for text in group if (match := _NAME.match(text)))
    return {normal(name) for name in names} - {project["name"]}


def licence_of(package: PackageMetadata) -> str:
    """Return the licence in a few words: the expression, else the classifiers, else the first line of the text."""
    classifiers = [
        text.split(" :: ")[-1] for text in package.get_all("Classifier", []) if text.startswith("License ::")
    ]
    named = [text for text in classifiers if text != "OSI Approved"]
    first_line = next((line.strip() for line in (package.get("License") or "").splitlines() if line.strip()), "")
    licence = package.get("License-Expression") or ", ".join(named) or first_line or "not named"
    return licence if len(licence) <= _MAX_LENGTH else f"{licence[: _MAX_LENGTH - 3]}..."


def rows(lock: Path, environment: str, *extras: str) -> list[list[str]]:
    """Return environment, name, version, licence and "yes" if direct, of each package of `lock` that is installed."""
    direct = direct_dependencies(*extras)
    names = {normal(name) for name, _ in _PIN.findall(lock.read_text(encoding="utf-8"))} | {"torch"}
    found = []
    for name in sorted(names):
        try:
            package = metadata(name)
        except PackageNotFoundError:
            continue  # of another platform
        version = package["Version"].partition("+")[0]
        found.append([environment, package["Name"], version, licence_of(package), "yes" if name in direct else ""])
    return found


if __name__ == "__main__":
    csv.writer(sys.stdout, lineterminator="\n").writerows(rows(Path(sys.argv[1]), sys.argv[2], *sys.argv[2:]))
