"""Prints the licences of the packages of a lock file, as the installed packages themselves name them.

`make licences` writes docs/licences.md with it. Run it with the interpreter of the environment that holds the packages.
"""

import re
import sys
import tomllib
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
_PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", re.MULTILINE)
_NAME = re.compile(r"^[A-Za-z0-9][\w.-]*")
_MAX_LENGTH = 60
HEADER = """# Licences of the dependencies

What the installed packages say of themselves; `make licences` writes this list. NVIDIA's libraries, which a CUDA build
of PyTorch brings, come under NVIDIA's own terms and are not listed. Direct dependencies are marked.
"""


def normal(name: str) -> str:
    """Return the name by which packages are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def direct_dependencies(*extras: str) -> set[str]:
    """Return the names that pyproject.toml asks for itself, with those of its extras that are named."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
    names = (match[0] for group in groups for text in group if (match := _NAME.match(text)))
    return {normal(name) for name in names}


def licence_of(package: PackageMetadata) -> str:
    """Return the licence in a few words: the expression, else the classifiers, else the first line of the text."""
    classifiers = [
        text.split(" :: ")[-1] for text in package.get_all("Classifier", []) if text.startswith("License ::")
    ]
    named = [text for text in classifiers if text != "OSI Approved"]
    first_line = next((line.strip() for line in (package.get("License") or "").splitlines() if line.strip()), "")
    licence = package.get("License-Expression") or ", ".join(named) or first_line or "not named"
    return licence if len(licence) <= _MAX_LENGTH else f"{licence[: _MAX_LENGTH - 3]}..."


def table(lock: Path, *extras: str) -> str:
    """Return a Markdown table of the packages of `lock` and torch that are installed here."""
    direct = direct_dependencies(*extras)
    lines = ["| Package | Version | Licence | Direct |", "|---|---|---|---|"]
    names = {normal(name) for name, _ in _PIN.findall(lock.read_text(encoding="utf-8"))} | {"torch"}
    for name in sorted(names):
        try:
            package = metadata(name)
        except PackageNotFoundError:
            continue  # of another platform
        version = package["Version"].partition("+")[0]
        lines.append(f"| {package['Name']} | {version} | {licence_of(package)} | {'yes' if name in direct else ''} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    heading = {"main": HEADER + "\n## The workbench", "verl-cpu": "\n## The verl engine's environment"}
    lock = Path(sys.argv[1])
    sys.stdout.write(f"{heading[lock.stem]}\n\n{table(lock, *sys.argv[2:])}")
