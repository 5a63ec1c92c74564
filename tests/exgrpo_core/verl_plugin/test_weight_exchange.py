"""The limited exchange of weights: verl's sender and receiver, each in a process of its own, through shared memory."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.conftest import REPOSITORY

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(1200)]

LIMIT_SECONDS = 15.0
WAITS_SECONDS = 120.0
"""A side that has not ended by then on a busy machine waits for ever."""
AND_NOW = "Resume the run: it continues from its newest checkpoint."
CASES = ("whole", "vllm timed out", "raises", "killed", "killed vllm_failed", "no receiver", "no sender")
EXCHANGES = """
import asyncio, json, multiprocessing, os, sys, types, zmq
from concurrent.futures import Future
if "without_vllm" in sys.argv:
    sys.modules["verl.third_party.vllm"] = types.SimpleNamespace(VLLM_SLEEP_LEVEL=1)  # it asks for vLLM's version
import torch
from exgrpo_core.verl_plugin.weight_exchange import LimitedReceiver, LimitedSender, _finish
folder, limit, seconds, cases = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), json.loads(sys.argv[4])
weights = [(f"layer{n}", torch.full((n + 1, 300_000), n + 0.5)) for n in range(5)]
LimitedReceiver.limit_seconds = limit


def send(case, handle):
    answer = Future()
    def named():
        for name, tensor in weights:
            if name == "layer4" and "vllm_failed" in case:
                answer.set_exception(RuntimeError("EngineCore died."))
            yield name, tensor
    options = {"receiver": "vLLM's worker (replica 0, rank 0)", "answer": answer, "limit_seconds": limit}
    asyncio.run(LimitedSender(handle, 8, True, **options).async_send_weights(named()))
    if "timed out" in case:
        error_of_ray = type("RayTaskError(TimeoutError)", (RuntimeError, TimeoutError), {})
        answer.set_exception(error_of_ray("RPC call timed out."))
        asyncio.run(_finish(answer, options["receiver"], "finish the update"))


def receive(case, handle):
    found, number = {}, 0
    def take(bucket, is_last):
        nonlocal number
        number += 1
        if number == 2 and "raises" in case:
            raise ValueError("size mismatch for layer2")
        if number == 2 and "killed" in case:
            os.kill(os.getpid(), 9)
        found.update((name, tensor.clone()) for name, tensor in bucket)
    LimitedReceiver(handle, torch.device("cpu"), use_shm=True).receive_weights(take)
    assert found.keys() == dict(weights).keys(), found.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in weights)
    assert number > 2


def tell(side, case, number):
    with open(f"{folder}/{side.__name__}-{number}", "w") as file:
        try:
            side(case, f"ipc://{folder}/socket-{number}")
            file.write("done")
        except Exception as error:
            file.write(f"{type(error).__name__}: {error}")
    if side is receive:
        zmq.Context.instance().term()  # vLLM's worker lives on after an error, so that what it answered is sent


fork = multiprocessing.get_context("fork")
sides = {
    (side.__name__, number): fork.Process(target=tell, args=(side, case, number))
    for number, case in enumerate(cases)
    for side, is_there in ((send, case != "no sender"), (receive, case != "no receiver"))
    if is_there
}
for process in sides.values():
    process.start()
for (name, number), process in sides.items():
    process.join(seconds)
    if process.is_alive():
        process.kill()
        with open(f"{folder}/{name}-{number}", "w") as file:
            file.write("still waits")
"""


@pytest.fixture(scope="module")
def ends(tmp_path_factory) -> dict[str, tuple[str, str]]:
    """How sender and receiver end in each case; all cases at once, since the import takes longest."""
    folder = tmp_path_factory.mktemp("exchange")
    words = [str(folder), str(LIMIT_SECONDS), str(WAITS_SECONDS), json.dumps(CASES)]
    if find_spec("vllm") is None:  # verl asks whether vLLM is installed; the exchange does without
        (folder / "vllm-0.dist-info").mkdir()
        (folder / "vllm-0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0\n")
        words.append("without_vllm")
    environment = os.environ | {"PYTHONPATH": f"{REPOSITORY}{os.pathsep}{folder}"}
    command = [sys.executable, "-W", "ignore", "-c", EXCHANGES, *words]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr[-3000:]

    def end(side: str, number: int) -> str:
        path = folder / f"{side}-{number}"
        return path.read_text() if path.exists() else ""

    return {case: (end("send", number), end("receive", number)) for number, case in enumerate(CASES)}


def failed_to(stage: str, why: str) -> str:
    receiver = "vLLM's worker (replica 0, rank 0)"
    return f"EngineError: weight exchange: {receiver} did not {stage} ({why}); the log has the tracebacks. {AND_NOW}"


def test_weights_arrive_in_several_buckets(ends):
    assert ends["whole"] == ("done", "done")


def test_an_error_of_vllm_that_is_a_timeout_is_told_as_vllms_own(ends):
    assert ends["vllm timed out"] == (failed_to("finish the update", "RPC call timed out"), "done")


def test_sender_ends_with_the_error_of_a_receiver_that_raises(ends):
    error = "ValueError: size mismatch for layer2"
    assert ends["raises"] == (failed_to("load bucket 2", error), error)


def test_sender_ends_within_the_limit_when_the_receiver_is_killed(ends):
    assert ends["killed"] == (failed_to("load bucket 2", "no answer within 15 s"), "")


def test_sender_ends_with_vllms_own_error_when_vllm_has_failed(ends):
    assert ends["killed vllm_failed"] == (failed_to("load bucket 2", "EngineCore died"), "")


def test_sender_ends_within_the_limit_when_no_receiver_connects(ends):
    assert ends["no receiver"][0] == failed_to("connect to the training worker", "no answer within 15 s")


def test_receiver_ends_within_the_limit_when_nothing_is_sent(ends):
    expected = "weight exchange: after 0 buckets the training worker sent nothing for 15 s."
    assert ends["no sender"][1] == f"EngineError: {expected}"
