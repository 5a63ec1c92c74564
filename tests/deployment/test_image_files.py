import os
import re
import shutil
import stat
import subprocess

import pytest
import yaml

from tests.deployment.image_files import DOCKERFILE, REPOSITORY, health_check, service, stage

TARGETS = ("workbench", "viewer", "engine")


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_as_a_user_who_owns_the_state_alone_and_listens_on_loopback_unless_told(target):
    instructions = stage(target)
    assert [rest for word, rest in instructions if word == "USER"] == ["1000:1000"]
    assert any("state-folders" in rest and "OWNER=1000" in rest for word, rest in instructions if word == "RUN")
    assert not any("--chown" in rest for word, rest in instructions if word == "COPY")
    last_write = max(index for index, (word, _) in enumerate(instructions) if word in {"RUN", "COPY"})
    assert instructions.index(("USER", "1000:1000")) > last_write
    assert "/_stcore/health" in health_check(target)[-1]
    assert ("CMD", '["exgrpo", "up", "--no-browser"]') in instructions
    (environment,) = [rest for word, rest in instructions if word == "ENV"]
    places = dict(re.findall(r"(\w+)=/srv/state/(\w+)", environment))
    assert places == {"HOME": "home", "EXGRPO_RUNS_ROOT": "runs", "EXGRPO_CACHE_DIR": "cache", "HF_HOME": "models"}


def test_the_engine_s_pairing_is_the_one_of_the_gpu_constraints():
    assert any("verl-env" in rest and "GPU=1" in rest for word, rest in stage("engine") if word == "RUN")
    assert re.fullmatch(r"nvidia/cuda:13\.0\.\d-devel-ubuntu24\.04 AS engine", dict(stage("engine"))["FROM"])
    assert "CUDA 13.0" in (REPOSITORY / "requirements/constraints-verl-gpu.txt").read_text()


def test_no_tests_secrets_or_environments_go_into_an_image():
    ignored = (REPOSITORY / ".dockerignore").read_text().split()
    assert {".git", ".env", ".venv", ".venv-*", "runs", "tests"} <= set(ignored)


def test_the_dockerfile_has_no_findings_of_hadolint():
    hadolint = shutil.which("hadolint", path=f"{REPOSITORY / '.venv-tools' / 'bin'}{os.pathsep}{os.environ['PATH']}")
    if hadolint is None:
        pytest.skip("hadolint is not installed; `make lint-images` installs it.")
    finished = subprocess.run([hadolint, "--no-color", DOCKERFILE], capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stdout) == (0, "")


def test_state_folders_belong_to_the_owner_alone(tmp_path):
    command = ["make", "-C", str(REPOSITORY), "state-folders", f"STATE={tmp_path / 'state'}", f"OWNER={os.getuid()}"]
    subprocess.run(command, check=True, capture_output=True)
    folders = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "state").iterdir()}
    assert folders == dict.fromkeys(("runs", "models", "cache", "home"), 0o700)


@pytest.mark.parametrize("name", ["workbench", "database", "proxy"])
def test_every_service_has_a_read_only_root_and_no_privileges_to_spare(name):
    declared = service(name)
    assert declared["read_only"] is True
    assert declared["cap_drop"] == ["ALL"]
    assert not {"privileged", "network_mode", "pid"} & declared.keys()


def test_only_the_proxy_is_reachable_and_the_database_has_no_way_out():
    assert "ports" not in service("workbench")
    assert "ports" not in service("database")
    assert service("proxy")["ports"] == ["80:80", "443:443"]
    assert service("database")["networks"] == ["data"]
    networks = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())["networks"]
    assert networks["data"] == {"internal": True}


def test_services_and_volumes_of_the_document_are_those_of_compose():
    text = (REPOSITORY / "docs" / "deployment.md").read_text(encoding="utf-8")
    declared = yaml.safe_load((REPOSITORY / "compose.yaml").read_text(encoding="utf-8"))
    assert set(re.findall(r"^\| `(\w+)` ", text, re.MULTILINE)) == set(declared["services"])
    assert all(f"`{volume}`" in text for volume in declared["volumes"])


def test_secrets_come_from_the_user_s_file_and_are_asked_for():
    text = (REPOSITORY / "compose.yaml").read_text()
    for name in ("WORKBENCH_NAME", "EXGRPO_TOKEN", "POSTGRES_PASSWORD"):
        assert f"${{{name}:?" in text
    assert "@database" in service("workbench")["environment"]["EXGRPO_DATABASE_URL"]
    assert ":" not in service("workbench")["environment"]["EXGRPO_DATABASE_URL"].partition("://")[2]


def test_other_files_of_compose_change_the_way_in_or_the_target_and_nothing_else():
    signed_in = service("workbench", REPOSITORY / "deploy" / "compose.sign-in.yaml")
    words = service("workbench")["command"]
    assert signed_in == {
        "command": [*words[: words.index("--allow-host")], "--sign-in", "/srv/sign-in.toml"],
        "volumes": ["./sign-in.toml:/srv/sign-in.toml:ro"],
    }
    on_gpus = service("workbench", REPOSITORY / "deploy" / "compose.gpu.yaml")
    assert (on_gpus["build"]["target"], on_gpus["shm_size"]) == ("engine", "64gb")
