"""The repository's compose file, run by podman-compose, which looks at no health before Podman 4.6."""

import json
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.deployment.image_files import ENVIRONMENT_FILE, REPOSITORY
from tests.images.parts import Podman
from tests.jobs.execution.supervisor.toy_bench import wait_until

COMPOSE = REPOSITORY / ".venv-tools" / "bin" / "podman-compose"
SECONDS = 300.0
wait = partial(wait_until, timeout_seconds=SECONDS, poll_seconds=0.5)


@dataclass(frozen=True)
class Project:
    """compose.yaml in a folder as a user has it, with `.env` next to it."""

    podman: Podman
    folder: Path

    def write(self) -> None:
        (self.folder / "deploy").mkdir(parents=True)
        for name in ("compose.yaml", "deploy/Caddyfile"):
            shutil.copy(REPOSITORY / name, self.folder / name)
        lines = [f"{name}={value}\n" for name, value in ENVIRONMENT_FILE.items()]
        (self.folder / ".env").write_text("".join(lines), encoding="utf-8")

    def compose(self, *words: object) -> str:
        return self.podman.run(COMPOSE, *words, cwd=self.folder)

    def shell(self, words: str) -> None:
        self.podman.run("sh", "-c", f"{COMPOSE} {words}", cwd=self.folder)

    def up(self) -> None:
        self.compose("up", "--detach", "--no-build")
        for service in ("database", "workbench"):
            wait(lambda name=service: self.is_healthy(name), f"the health of {service}")

    def is_healthy(self, service: str) -> bool:
        return self.podman.ends_well("healthcheck", "run", self.container(service))

    def container(self, service: str) -> str:
        return f"exgrpo_{service}_1"

    def exgrpo(self, *words: object) -> str:
        return self.podman("exec", self.container("workbench"), "exgrpo", *words)

    def read(self, *words: object) -> Any:
        return json.loads(self.exgrpo(*words, "--json"))

    def run(self, run_id: str) -> dict[str, Any]:
        (row,) = [row for row in self.read("runs") if row["run_id"] == run_id]
        return row

    def train(self, *settings: str) -> str:
        words = [word for setting in settings for word in ("--set", setting)]
        return self.read("train", "--preset", "chains-exgrpo", *words, "--detach")["run_id"]

    def wait_for_step(self, run_id: str, step: int) -> None:
        wait(lambda: (self.run(run_id)["step"] or 0) >= step, f"step {step} of {run_id}")

    def checkpoints(self, run_id: str) -> list[int]:
        return [checkpoint["step"] for checkpoint in self.read("query", "checkpoints", run_id)]

    def logs(self) -> str:
        """Return what every service has written since it was made."""
        return "".join(self.podman("logs", self.container(name)) for name in ("proxy", "workbench", "database"))
