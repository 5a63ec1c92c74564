"""The project's weight: lines of each package, and files that each walk of `bench.walks` enters.

`make check` prints it and fails above a number in `[tool.exgrpo.weight]` of pyproject.toml. CONTRIBUTING.md says who
may raise a number.
"""

import tomllib
from collections.abc import Mapping

from bench.walks import ROOT, all_walks, files_of

PACKAGES = ("app", "bench", "db", "exgrpo_core", "jobs", "tests")
OWN_SCRIPTS = "javascript_and_css"


def count_lines() -> dict[str, int]:
    """Return the lines of each package's Python, and of the app's own JavaScript and CSS."""
    patterns = {name: [f"{name}/**/*.py"] for name in PACKAGES}
    patterns |= {"exgrpo": ["exgrpo/*.py"], OWN_SCRIPTS: ["app/**/*.js", "app/**/*.css"]}
    return {
        name: sum(len(path.read_bytes().splitlines()) for item in several for path in ROOT.glob(item))
        for name, several in patterns.items()
    }


def find_excess(measured: Mapping[str, int], limits: Mapping[str, int]) -> list[str]:
    """Return a sentence for each figure above its number, and for each that has none."""
    return [
        f"{name}: {figure:,} is above {limits.get(name, 0):,} in pyproject.toml, [tool.exgrpo.weight]; remove as much "
        "elsewhere, or raise the number in a commit that says what for."
        for name, figure in measured.items()
        if figure > limits.get(name, 0)
    ]


def main() -> int:
    """Print the figures next to their numbers; 1 if one is above."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    limits: dict[str, dict[str, int]] = tomllib.loads(text)["tool"]["exgrpo"]["weight"]
    measured = {
        "lines": count_lines(),
        "walks": {name: len(files_of(entered)) for name, entered in all_walks().items()},
    }
    for kind, figures in measured.items():
        print(
            f"{kind}: "
            + ", ".join(f"{name} {value:,} (<= {limits[kind].get(name, 0):,})" for name, value in figures.items())
        )
    excess = [sentence for kind, figures in measured.items() for sentence in find_excess(figures, limits[kind])]
    print(*excess, sep="\n", end="\n" if excess else "")
    return 1 if excess else 0


if __name__ == "__main__":
    raise SystemExit(main())
