"""Debian's buildah and podman, with storage of their own, and what an image's build needs of this machine."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.deployment.image_files import REPOSITORY

BASE = "python:3.12-slim-bookworm"
"""The Dockerfile's base; here it is made by debootstrap, with the Python of these tests."""
DEBIAN = "localhost/debian"
"""The same under the name that this folder's Containerfiles use."""
PACKAGES = "ca-certificates,make,python3,python3-venv"
_STORAGE = '[storage]\ndriver = "overlay"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
# crun does not start where cgroups are hybrid; podman's other network back end gives an internal network no names.
_CONTAINERS = """[containers]
pids_limit = 0
default_ulimits = []
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
"""


@dataclass(frozen=True)
class Podman:
    """Podman and buildah over the storage in `folder`, which nobody else uses."""

    folder: Path
    environment: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        paths = {"CONTAINERS_STORAGE_CONF": "storage.conf", "CONTAINERS_CONF": "containers.conf"}
        for (_, name), text in zip(paths.items(), (_STORAGE, _CONTAINERS), strict=True):
            (self.folder / name).write_text(text.format(folder=self.folder), encoding="utf-8")
        variables = {name: str(self.folder / path) for name, path in paths.items()}
        variables |= {"BUILDAH_ISOLATION": "chroot", "TMPDIR": str(self.folder)}
        object.__setattr__(self, "environment", {**os.environ, **variables})

    def run(self, *words: object, cwd: Path = REPOSITORY) -> str:
        """Run a program with this storage and return what it prints; errors are shown as it ends with another code."""
        line = [str(word) for word in words]
        finished = subprocess.run(line, cwd=cwd, env=self.environment, capture_output=True, text=True, check=False)
        assert finished.returncode == 0, f"{' '.join(line)}: {finished.stdout[-4000:]}{finished.stderr[-4000:]}"
        return finished.stdout.strip()

    def __call__(self, *words: object) -> str:
        return self.run("podman", *words)

    def ends_well(self, *words: object) -> bool:
        """Return whether a command of podman ends with 0."""
        return (
            subprocess.run(
                ["podman", *map(str, words)], env=self.environment, capture_output=True, check=False
            ).returncode
            == 0
        )

    def build(self, folder: Path, name: str, *options: object) -> None:
        # Docker's format: the other one has no health checks.
        fixed = ["--pull-never", "--layers", "--format", "docker", "--network", "host", "-t", name]
        self.run("buildah", "bud", *fixed, *options, folder)

    def make_base(self) -> None:
        root = self.folder / "debian"
        sites = _printed("apt-get", "indextargets", "--format", "$(SITE)", *_OF_DEBIAN).split()
        release = platform.freedesktop_os_release()["VERSION_CODENAME"]
        self.run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", release, root, sites[0])
        sources = _printed("apt-get", "indextargets", "--format", "deb $(SITE) $(RELEASE) $(COMPONENT)", *_OF_DEBIAN)
        (root / "etc/apt/sources.list").write_text(sources, encoding="utf-8")
        settings = _printed("apt-config", "dump", *(f"Acquire::{name}" for name in _APT_SETTINGS))
        (root / "etc/apt/apt.conf.d/50machine").write_text(settings + _AS_THE_BASE, encoding="utf-8")
        for unused in _NOT_IN_THE_BASE:
            self.run("find", root / unused, "-type", "f", "-delete")
        _copy_python(root / "usr/local")
        self.run("chroot", root, "ldconfig")
        container = self.run("buildah", "from", "scratch")
        self.run("buildah", "add", "--quiet", container, root, "/")
        self.run("buildah", "commit", "--quiet", "--rm", container, BASE)
        self.run("rm", "-rf", root)
        self("tag", BASE, DEBIAN)

    def size(self, image: str) -> float:
        return int(self("image", "inspect", "--format", "{{.Size}}", image)) / 1e9

    def clear(self) -> None:
        for words in (("rm", "--all", "--force", "--time=0"), ("network", "prune", "--force")):
            self(*words)
        self("system", "reset", "--force")


_OF_DEBIAN = ("Origin: Debian", "Created-By: Packages")
_NOT_IN_THE_BASE = ("var/cache/apt", "var/lib/apt/lists", *(f"usr/share/{name}" for name in ("doc", "locale", "man")))
_AS_THE_BASE = 'Dir::Cache { pkgcache ""; srcpkgcache ""; };\n'
_APT_SETTINGS = ("Check-Valid-Until", "Check-Date", "http", "https")
_PIP_SETTINGS = ("index-url", "extra-index-url", "find-links", "constraint", "cert")


def _copy_python(target: Path) -> None:
    """Copy the Python that runs, without packages, where the Dockerfile's base has its own: Debian 12's is too old."""
    source, name = Path(sys.base_prefix), f"python{sys.version_info.major}.{sys.version_info.minor}"
    if source == Path("/usr"):
        return
    for path in target.parent.glob("lib/python3*"):  # Debian's own is there for the libraries that both need
        shutil.rmtree(path)
    unused = shutil.ignore_patterns("site-packages", "test", "__pycache__", "config-*")
    shutil.copytree(source / "lib" / name, target / "lib" / name, ignore=unused, dirs_exist_ok=True)
    for path in (*source.glob("lib/libpython*.so.*"), source / "bin" / name):
        shutil.copy(path, target / path.relative_to(source))
    (target / "bin/python3").symlink_to(name)


def _printed(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def pip_settings(folder: Path) -> list[str]:
    settings: dict[str, str] = {}
    for line in _printed(sys.executable, "-m", "pip", "config", "list").splitlines():
        name, _, value = line.partition("=")
        settings.setdefault(name.rpartition(".")[2], value.strip("'"))
    options: list[str] = []
    lines = ["[global]"]
    for name in _PIP_SETTINGS:
        words = settings.get(name, "").split()
        for index, word in enumerate(words):
            path = Path(word.removeprefix("file://"))
            if not (path.is_absolute() and path.exists()):
                continue
            # A package may replace what lies next to a file; an index on disk names files next to its folder.
            inside = Path("/run") / name if path.is_file() else path
            mounted = path if path.is_file() or name == "find-links" else path.parent
            options += ["-v", f"{mounted}:{inside if path.is_file() else mounted}:ro"]
            words[index] = word.replace(str(path), str(inside))
        lines += [f"{name} = {' '.join(words)}"] if words else []
    (folder / "pip.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [*options, "-v", f"{folder / 'pip.conf'}:/etc/pip.conf:ro"]
