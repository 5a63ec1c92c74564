"""The ways to make the workbench talk to an address inside, as pages and programs enter them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app import requests
from app.roles import Role
from jobs.evaluation.server_generator import ServerGenerator
from jobs.launchers.ray_jobs import RayJobsLauncher
from jobs.machine.model_server import check_address
from jobs.runs.directory import RunDirectory
from jobs.specs.evaluation import EvalSpec
from jobs.specs.judging import JudgeSpec
from jobs.specs.train import TrainSpec, parse_spec
from jobs.studies.definition import Scale
from jobs.studies.matrix import RunKey
from jobs.studies.running import PendingRun

URL = "http://169.254.169.254/latest"
RUN = "thoughts-finished"
STUDY, CELL = "main-table", "exgrpo"
NOT_ALLOWED = "is a link-local address"
NO_CLUSTER = "link-local address, where no Ray cluster can be"
NO_SOURCE = "expected an existing file or folder"
SERVER = {"address": URL, "model": "m"}
ON_CLUSTER = {"engine": "verl", "model": {"source": "m"}, "verl": {"ray": {"address": URL}}}


@dataclass(frozen=True)
class Way:
    """Who may go it, and what the address meets; `go` returns the id of the job that it queues, if any."""

    role: Role
    refusal: str
    go: Callable[[], object]


@dataclass(frozen=True)
class PageWay:
    """The same on a page: `choices` make it show the `fields`, whose form the button with the key `pressed` sends."""

    role: Role
    refusal: str
    page: str
    query: Mapping[str, str]
    fields: Mapping[str, str | list[str]]
    pressed: str
    choices: Mapping[str, list[str]]


def use(run: RunDirectory) -> None:
    """Do what the worker or the supervisor does with a queued job before its first request."""
    spec = run.job_spec()
    if isinstance(spec, JudgeSpec):
        check_address("server.address", spec.server.address)
    elif isinstance(spec, EvalSpec):
        ServerGenerator(spec.server, spec, 1)
    else:
        launcher = RayJobsLauncher(run, 1, spec)
        launcher.close()
        launcher.check()


def ask_cluster() -> None:
    requests.save_cluster("ours", URL)
    requests.ask_cluster("ours")


def probe() -> None:
    started = requests.start_probe(train_spec(model={"source": URL}))
    try:
        while (result := started.result()) is None:
            started._process.wait()
    finally:
        started.stop()
    raise requests.SpecError(result)


def train_spec(**fields: object) -> TrainSpec:
    return parse_spec(fields, "form")


def evaluate(target: str, **fields: object) -> str:
    return requests.evaluate(target, {"benchmarks": [{"name": "math500"}]} | fields)


def start_study_run() -> str:
    pending = PendingRun(RunKey(STUDY, Scale.PAPER, CELL, 0), None)
    return requests.start_study_run(pending, [f"verl.ray.address={URL}"])


ASKED_JUDGE = {"judge": "server", "judged": {"run_id": RUN}, "server": SERVER}
OF_BENCHMARK = [{"name": "math500", "source": f"{URL}/rows.parquet"}]
WAYS = {
    "judge": Way(Role.OPERATOR, NOT_ALLOWED, lambda: requests.submit_judge(ASKED_JUDGE)),
    "model server": Way(Role.OPERATOR, NOT_ALLOWED, lambda: evaluate("m", generator="server", server=SERVER)),
    "cluster of a run": Way(Role.OPERATOR, NO_CLUSTER, lambda: requests.submit(train_spec(**ON_CLUSTER))),
    "cluster of a study": Way(Role.OPERATOR, NO_CLUSTER, start_study_run),
    "known cluster": Way(Role.ADMIN, NO_CLUSTER, ask_cluster),
    "model of an evaluation": Way(Role.OPERATOR, NO_SOURCE, lambda: evaluate(URL)),
    "data of a benchmark": Way(Role.OPERATOR, NO_SOURCE, lambda: evaluate("m", benchmarks=OF_BENCHMARK)),
    "model of a run": Way(Role.OPERATOR, NO_SOURCE, lambda: requests.submit(train_spec(model={"source": URL}))),
    "data of a run": Way(Role.OPERATOR, NO_SOURCE, lambda: requests.submit(train_spec(data={"source": URL}))),
    "form of a run": Way(Role.OPERATOR, NO_SOURCE, lambda: requests.check({"model": {"source": URL}})),
    "preview of data": Way(
        Role.OPERATOR, "cannot be loaded", lambda: requests.preview_data(train_spec(data={"source": URL}))
    ),
    "probe": Way(Role.OPERATOR, NO_SOURCE, probe),
    "chat": Way(Role.OPERATOR, NO_SOURCE, lambda: list(requests.chat([URL], "1 + 1 =", []))),
}
PAGE_WAYS = {
    "judge": PageWay(
        Role.OPERATOR, NOT_ALLOWED, "entropy_and_judge", {"run": RUN, "view": "Judges"}, {"judge-address": URL},
        "FormSubmitter:judge-form-Start judge job", {"judge-kind": ["language model behind a server"]},
    ),
    "model server": PageWay(
        Role.OPERATOR, NOT_ALLOWED, "benchmarks", {"start": "true"},
        {"evaluate-target": "m", "evaluate-generator": "server", "evaluate-address": URL, "evaluate-model": "m"},
        "FormSubmitter:evaluate-Start evaluation", {},
    ),
    "cluster of a study": PageWay(
        Role.OPERATOR, NO_CLUSTER, "studies", {"study": STUDY, "scale": "paper", "cells": CELL, "seeds-paper": "1"},
        {"study-settings": f"verl.ray.address={URL}"}, "launch", {},
    ),
    "known cluster": PageWay(
        Role.ADMIN, "", "system", {"view": "Ray clusters"}, {"cluster-name": "ours", "cluster-address": URL},
        "FormSubmitter:add-cluster-Add cluster", {},
    ),
    "test of a cluster": PageWay(Role.ADMIN, NO_CLUSTER, "system", {"view": "Ray clusters"}, {}, "test-ours", {}),
}  # fmt: skip
"""In an order: the last one's cluster is added by the one before."""
COMMANDS = {
    "judge": (NOT_ALLOWED, ["judge", RUN, "--server", URL, "--detach"]),
    "model server": (
        NOT_ALLOWED,
        ["eval", "m", "-b", "math500", "--set", "generator=server", "--set", f"server={{address: {URL}, model: m}}",
         "--detach"],
    ),
    "cluster of a run": (
        NO_CLUSTER,
        ["train", "--set", "engine=verl", "--set", "model.source=m", "--set", f"verl.ray.address={URL}", "--detach"],
    ),
    "cluster of a study": (
        NO_CLUSTER,
        ["study", "run", STUDY, "--scale", "paper", "--cells", CELL, "--set", f"verl.ray.address={URL}", "--detach"],
    ),
    "model of an evaluation": (NO_SOURCE, ["eval", URL, "-b", "math500"]),
    "data of a benchmark": (NO_SOURCE, ["eval", "m", "-b", f"math500={URL}/rows.parquet"]),
    "model of a run": (NO_SOURCE, ["train", "--set", f"model.source={URL}"]),
    "data of a run": (NO_SOURCE, ["train", "--set", f"data.source={URL}"]),
    "probe": (NO_SOURCE, ["probe", "--set", f"model.source={URL}"]),
    "chat": (NO_SOURCE, ["chat", URL]),
    "archive": ("", ["import", URL]),
}  # fmt: skip
