"""What the files of the images and of compose say, as tests read it."""

import json
import re
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
DOCKERFILE = REPOSITORY / "Dockerfile"
HOST_NAME = "workbench.localhost"
TOKEN = "a-token-for-the-tests-of-compose"
ENVIRONMENT_FILE = {"WORKBENCH_NAME": HOST_NAME, "EXGRPO_TOKEN": TOKEN, "POSTGRES_PASSWORD": "not a secret"}
"""What a user writes into `.env`."""
_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::[-?](?P<rest>[^}]*))?\}")


def instructions():
    lines = [line for line in DOCKERFILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(word, rest) for line in joined.splitlines() if line for word, _, rest in [line.partition(" ")]]


def stage(name):
    stages: dict[str, list[tuple[str, str]]] = {}
    for word, rest in instructions():
        if word == "FROM":
            base, _, current = rest.partition(" AS ")
            stages[current] = list(stages.get(base, ()))
        stages[current].append((word, rest))
    return stages[name]


def health_check(name):
    (check,) = [rest for word, rest in stage(name) if word == "HEALTHCHECK"]
    return json.loads(check[check.index("[") :])


def service(name, path=REPOSITORY / "compose.yaml"):
    text = path.read_text(encoding="utf-8")
    filled = _VARIABLE.sub(lambda match: ENVIRONMENT_FILE.get(match["name"], ""), text)
    return yaml.safe_load(filled)["services"][name]
