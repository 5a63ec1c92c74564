"""Canaries in every place a secret may come from, looked for in every place that it must not reach."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from sqlalchemy import MetaData, make_url, select
from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner

from exgrpo.app import settings
from exgrpo.db.connections.opening import open_database
from exgrpo.db.connections.session import url_without_password
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.cli.main import app
from exgrpo.jobs.evaluation.generation import PromptedQuestion
from exgrpo.jobs.evaluation.server_generator import ServerGenerator
from exgrpo.jobs.machine.model_server import KEY_ADDRESSES_VARIABLE
from exgrpo.jobs.runs.attempts import read_outcome
from exgrpo.jobs.runs.control import TrainingError
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.base import checked
from exgrpo.jobs.specs.evaluation import API_KEY_VARIABLE as EVAL_KEY
from exgrpo.jobs.specs.evaluation import EvalSpec
from exgrpo.jobs.specs.judging import API_KEY_VARIABLE as JUDGE_KEY
from tests.app.conftest import MAIN_SCRIPT
from tests.jobs.evaluation.judging.chain_runs import record_chains, server_spec
from tests.jobs.evaluation.judging.judge_server import Reply, completion, serving
from tests.postgres import running_server

pytestmark = pytest.mark.slow

CANARIES = {
    JUDGE_KEY: "canary-judge-key-3f9a51", EVAL_KEY: "canary-model-key-77b2c0",
    "EXGRPO_TOKEN": "canary-link-token-0d8e64", "EXGRPO_RAY_TOKEN": "canary-ray-token-b51f22",
    "HF_TOKEN": "canary-hub-token-9c4410",
}  # fmt: skip
DATABASE_PASSWORD = "canary-database-password-6e1d"
NO_WORKERS_BUSINESS = {CANARIES["EXGRPO_TOKEN"], DATABASE_PASSWORD}
WAIT_SECONDS = 90
REPOSITORY = Path(__file__).resolve().parents[2]


def found_in(text):
    return [canary for canary in (*CANARIES.values(), DATABASE_PASSWORD) if canary in text]


def echo(_body):
    """A server that says the key it was shown: first in an error, then in answers."""
    return completion(f"\\boxed{{yes}} Authorization: Bearer {CANARIES[JUDGE_KEY]}")


def command_lines(process):
    lines = []
    for item in [process, *process.children(recursive=True)]:
        with suppress(psutil.Error):
            lines += item.cmdline()
    return "\n".join(lines)


def environments_of_workers(process):
    found = []
    for child in process.children(recursive=True):
        with suppress(psutil.Error):  # it has ended since
            if "exgrpo.jobs.execution.worker" in child.cmdline():
                found.append(child.environ())
    return found


def dump(url, runs_root):
    database = open_database(url, runs_root, checks_schema=False)
    tables = MetaData()
    with database.read() as connection:
        tables.reflect(connection)
        rows = [str(row) for table in tables.sorted_tables for row in connection.execute(select(table))]
    database.close()
    assert rows
    return "\n".join(rows)


@pytest.fixture(scope="module")
def postgres():
    with running_server() as url:
        yield make_url(url).set(password=DATABASE_PASSWORD).render_as_string(hide_password=False)


@pytest.mark.slow
def test_no_secret_of_a_judges_job_is_found_anywhere(tmp_path, postgres):
    """Workbench, supervisor and worker run for real; the judge's server says the key in every answer."""
    runs_root = tmp_path / "runs"
    runs_root.mkdir()
    record_chains(runs_root, [["valid", "lucky"], ["valid"]])
    secrets = CANARIES | {"EXGRPO_DATABASE_URL": postgres, "PGPASSWORD": DATABASE_PASSWORD}
    command = [
        sys.executable, "-m", "exgrpo.jobs.cli", "up", "--no-browser", "--port", "0", "--runs-root", str(runs_root),
    ]  # fmt: skip
    with (
        serving(echo) as server,
        subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=os.environ | secrets | {KEY_ADDRESSES_VARIABLE: server.address},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as started,
    ):
        process = psutil.Process(started.pid)
        judged = RunDirectory.open(runs_root, queue_job(runs_root, server_spec(server.address)))
        give_up_at = time.monotonic() + WAIT_SECONDS
        lines, environments = "", []
        while read_outcome(judged.attempt_path(1)) is None and time.monotonic() < give_up_at:
            lines += command_lines(process)
            environments += environments_of_workers(process)
            time.sleep(0.1)
        while "[key]" not in dump(postgres, runs_root) and time.monotonic() < give_up_at:
            time.sleep(0.2)
        started.send_signal(signal.SIGINT)
        printed, _ = started.communicate(timeout=30)
        keys = {headers.get("Authorization") for headers in server.headers}
    assert keys == {f"Bearer {CANARIES[JUDGE_KEY]}"}
    assert "exgrpo.jobs.execution.worker" in lines
    seen = {"process arguments": lines}
    seen["run directories, events, logs"] = "\n".join(
        path.read_bytes().decode("latin-1") for path in runs_root.rglob("*") if path.is_file()
    )
    seen["database"] = dump(postgres, runs_root)
    seen["printed"] = "\n".join(line for line in printed.splitlines() if not line.startswith("http://127.0.0.1"))
    for words in (["doctor"], ["show", judged.run_id]):
        finished = subprocess.run(
            [sys.executable, "-m", "exgrpo.jobs.cli", *words, "--runs-root", str(runs_root)],
            cwd=REPOSITORY, env=os.environ | secrets, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        seen[words[0]] = finished.stdout + finished.stderr
    settings.configure(settings.AppSettings(runs_root, postgres))
    page = AppTest.from_file(str(MAIN_SCRIPT), default_timeout=60)
    page.switch_page("app_pages/system.py").run()
    assert not page.exception
    seen["page"] = repr(page)
    assert {name: found for name, text in seen.items() if (found := found_in(text))} == {}
    assert "[key]" in seen["database"], "the echoed key must have been there to be taken out"
    assert environments
    assert NO_WORKERS_BUSINESS.isdisjoint(found_in(json.dumps(environments)))


def test_a_model_servers_echo_of_the_key_is_neither_recorded_nor_shown(monkeypatch):
    monkeypatch.setenv(EVAL_KEY, CANARIES[EVAL_KEY])
    replies = [Reply({"choices": [{"text": f"my key is {CANARIES[EVAL_KEY]}"}]}), Reply(CANARIES[EVAL_KEY], 400)]
    with serving(lambda _: replies.pop(0)) as server:
        monkeypatch.setenv(KEY_ADDRESSES_VARIABLE, server.address)
        spec = checked(
            EvalSpec,
            {
                "generator": "server", "model": {"source": "m"}, "benchmarks": [{"name": "math500"}],
                "server": {"address": server.address, "model": "m", "num_tries": 1},
            },
            "test",
        )  # fmt: skip
        generator = ServerGenerator(spec.server, spec, 1)
        question = [PromptedQuestion("q", "1 + 1 =", (), 0.6)]
        (answered,) = generator.generate(question, frozenset({"q"}), 1, 0)
        assert answered.samples[0].text == "my key is [key]"
        with pytest.raises(TrainingError) as refused:
            list(generator.generate(question, frozenset({"q"}), 1, 0))
        generator.close()
    assert "[key]" in str(refused.value)
    assert not found_in(str(refused.value))


def test_no_password_is_shown_wherever_in_the_databases_address_it_stands(tmp_path, caplog):
    forms = (
        f"postgresql://user:{DATABASE_PASSWORD}@127.0.0.1:1/db",
        f"postgresql://user@127.0.0.1:1/db?password={DATABASE_PASSWORD}",
        f"postgresql://127.0.0.1:1/db?user=u&sslpassword={DATABASE_PASSWORD}",
        f"mysql://user:{DATABASE_PASSWORD}@127.0.0.1/db",
        f"postgresql://user:{DATABASE_PASSWORD}@/db?host=/nowhere&connect_timeout=1",
    )
    for form in forms:
        assert DATABASE_PASSWORD not in url_without_password(make_url(form))
        with pytest.raises(RuntimeError) as refused:
            open_database(form, tmp_path, checks_schema=False)
        assert DATABASE_PASSWORD not in str(refused.value)
        result = CliRunner().invoke(app, ["runs", "--runs-root", str(tmp_path)], env={"EXGRPO_DATABASE_URL": form})
        assert result.exit_code or "The run directories are read instead" in caplog.text
        assert DATABASE_PASSWORD not in result.output + caplog.text
