import os
import tempfile
from pathlib import Path

import pytest

from tests.deployment.image_files import REPOSITORY
from tests.images.parts import Podman, pip_settings
from tests.tools import report_missing, require_tool

TOOLS = ("buildah", "podman", "runc", "debootstrap")
FOLDER = Path(__file__).parent
MAX_GB = {"workbench": 1.7, "viewer": 0.8}


@pytest.fixture(scope="session")
def podman():
    """Podman with the images of the Dockerfile's targets for machines without GPUs; all is removed at the end."""
    for name in TOOLS:
        require_tool(name)
    if os.geteuid() != 0:
        report_missing("Images are built as root.")
    # A file system on a disk: overlays are made on it.
    with tempfile.TemporaryDirectory(prefix="exgrpo-images-", dir="/var/tmp", ignore_cleanup_errors=True) as folder:
        podman = Podman(Path(folder))
        try:
            podman.make_base()
            for target in MAX_GB:
                podman.build(REPOSITORY, f"exgrpo-{target}", "--target", target, *pip_settings(podman.folder))
            yield podman
        finally:
            podman.clear()


@pytest.fixture(scope="session")
def podman_with_services(podman):
    for name in ("postgres:17-bookworm", "caddy:2-alpine"):
        program = name.partition(":")[0]
        podman.build(FOLDER, f"{name}", "--file", FOLDER / f"{program}.Containerfile")
    return podman
