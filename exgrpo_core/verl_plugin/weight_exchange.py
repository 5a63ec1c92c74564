"""The exchange of weights between a training worker and vLLM's worker on the same GPU: verl's, with a time limit.

In verl each side waits for the other for ever, and what vLLM's worker raises reaches nobody. Here no side waits longer
than `EXCHANGE_SECONDS` for a message, and the receiver answers with its error. The socket's name belongs to this job
only: verl names it after the job's id, which is the same in the first job of each Ray on a host.
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic
from typing import Any

import ray
import zmq
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver, BucketedWeightSender
from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter
from xxhash import xxh3_64_hexdigest

from exgrpo_core.errors import EngineError, first_line

EXCHANGE_SECONDS = 300.0
"""Longest wait of either side for the other's next message: a bucket takes seconds."""
_LOOK_SECONDS = 0.5
"""Seconds between two looks whether vLLM has failed."""


def job_name() -> str:
    """Return a name that no other job on this host has: the first job of each Ray has the id 01000000."""
    context = ray.get_runtime_context()
    return xxh3_64_hexdigest(f"{context.get_session_name()}/{context.get_job_id()}".encode())


def socket_of_job(handle: str, job: str) -> str:
    """Return verl's name of a socket with the job's name in it."""
    return f"ipc:///tmp/exgrpo-weights-{job}-replica-{handle.rpartition('-replica-')[2]}"


class _LimitedSocket:
    """The sender's socket, as verl's sender uses it."""

    def __init__(self, socket: Any, receiver: str, answer: "Future[Any] | None", limit_seconds: float) -> None:
        self._socket = socket
        self._receiver = receiver
        self._answer = answer
        self._limit_seconds = limit_seconds
        self._num_sent = 0

    def send_pyobj(self, message: Any) -> None:
        self._wait(zmq.POLLOUT)
        self._socket.send_pyobj(message)
        self._num_sent += 1

    def recv(self) -> None:
        self._wait(zmq.POLLIN)
        if error := self._socket.recv():
            raise failure(self._receiver, self._stage(), error.decode())

    def close(self) -> None:
        self._socket.close(linger=0)

    def _wait(self, event: int) -> None:
        until = monotonic() + self._limit_seconds
        while not self._socket.poll(int(_LOOK_SECONDS * 1000), event):
            if self._answer is not None and self._answer.done() and (error := self._answer.exception()):
                raise failure(self._receiver, self._stage(), error)
            if monotonic() > until:
                raise failure(self._receiver, self._stage(), f"no answer within {self._limit_seconds:.0f} s")

    def _stage(self) -> str:
        stages = ("connect to the training worker", "open the memory that they share")
        return stages[self._num_sent] if self._num_sent < len(stages) else f"load bucket {self._num_sent - 1}"


def failure(receiver: str, stage: str, error: BaseException | str) -> EngineError:
    """Return the error of an exchange, in which vLLM's own is quoted."""
    text = error if isinstance(error, str) else first_line(getattr(error, "cause", error))
    return EngineError(
        f"weight exchange: {receiver} did not {stage} ({text.rstrip('.')}); the log has the tracebacks. Resume the "
        "run: it continues from its newest checkpoint."
    )


class LimitedSender(BucketedWeightSender):
    """verl's sender, which ends with an error that names the stage when vLLM's worker fails or does not answer.

    `answer` is what the server will answer to the call that the receiver runs in, where this process made the call.
    """

    def __init__(
        self,
        *settings: Any,
        receiver: str,
        answer: "Future[Any] | None" = None,
        limit_seconds: float = EXCHANGE_SECONDS,
        **options: Any,
    ) -> None:
        super().__init__(*settings, **options)
        self._receiver, self._answer, self._limit_seconds = receiver, answer, limit_seconds

    def _init_socket(self) -> None:
        super()._init_socket()
        self.socket: Any = _LimitedSocket(self.socket, self._receiver, self._answer, self._limit_seconds)

    def _cleanup(self) -> None:
        # A receiver that is killed takes the shared memory along; the error that tells of it goes on.
        with contextlib.suppress(FileNotFoundError):
            super()._cleanup()


class LimitedReceiver(BucketedWeightReceiver):
    """verl's receiver, which tells the sender its error and does not wait for ever."""

    limit_seconds = EXCHANGE_SECONDS
    socket: Any

    def receive_weights(self, on_bucket_received: Callable[[list[Any], bool], None]) -> None:
        """Receive all buckets.

        Raises:
            EngineError: The training worker sent nothing for too long.
        """
        num_buckets = 0

        def receive(weights: list[Any], is_last: bool) -> None:
            nonlocal num_buckets
            on_bucket_received(weights, is_last)
            num_buckets += 1

        try:
            super().receive_weights(receive)
        except zmq.Again:
            raise EngineError(
                f"weight exchange: after {num_buckets} buckets the training worker sent nothing for "
                f"{self.limit_seconds:.0f} s."
            ) from None

    def _init_socket(self) -> None:
        super()._init_socket()
        for option in (zmq.RCVTIMEO, zmq.SNDTIMEO):
            self.socket.setsockopt(option, int(self.limit_seconds * 1000))

    def _cleanup(self) -> None:
        error = sys.exception()
        if error is None or self.socket is None:
            super()._cleanup()
            return
        # Where the sender awaits no answer, the socket refuses one.
        with contextlib.suppress(zmq.ZMQError):
            self.socket.send(f"{type(error).__name__}: {first_line(error)}".encode(), zmq.NOBLOCK)
        self.socket.close()
        self.socket = None
        # The error's frames have views of the shared memory, which cannot be closed then.
        with contextlib.suppress(BufferError):
            super()._cleanup()


class WeightAdapter(ServerAdapter):
    """verl's adapter of a training worker to its vLLM server, with the exchange of this module."""

    zmq_handle: str
    replica_rank: int
    rollout_rank: int
    server_handle: Any
    _has_server: bool

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._job = job_name()
        self.zmq_handle = socket_of_job(self.zmq_handle, self._job)

    async def update_weights(
        self, weights: Any, global_steps: int | None = None, wire_format: str = "named_tensors", **options: Any
    ) -> None:
        """Send all weights, and return once vLLM has loaded them.

        Raises:
            EngineError: vLLM's worker failed or did not answer in time.
        """
        if wire_format != "named_tensors":
            raise EngineError(f"weight exchange: expected the format named_tensors, got {wire_format}.")
        receiver = f"vLLM's worker (replica {self.replica_rank}, rank {self.rollout_rank})"
        given = options | {"use_shm": self.use_shm, "job": self._job}
        asked = await self._execute_method("update_weights_from_ipc", non_block=True, kwargs=given)
        answer = None if asked is None else asked.future()
        megabytes = self.config.checkpoint_engine.update_weights_bucket_megabytes
        sender = LimitedSender(self.zmq_handle, megabytes, self.use_shm, receiver=receiver, answer=answer)
        await sender.async_send_weights(weights)
        if answer is not None:
            await _finish(answer, receiver, "finish the update")
        if self._has_server:
            await _finish(self.server_handle.clear_kv_cache.remote().future(), receiver, "clear its cache")
            if global_steps is not None:
                noted = self.server_handle.set_global_steps.remote(global_steps)
                await _finish(noted.future(), receiver, "note the step")


async def _finish(answer: "Future[Any]", receiver: str, stage: str) -> None:
    try:
        await asyncio.wait_for(asyncio.wrap_future(answer), EXCHANGE_SECONDS)
    except TimeoutError as error:
        if answer.done() and not answer.cancelled():  # an error of vLLM's own, to which Ray gives its type
            raise failure(receiver, stage, error) from error
        raise failure(receiver, stage, f"no answer within {EXCHANGE_SECONDS:.0f} s") from None
    except Exception as error:  # whatever the server raised
        raise failure(receiver, stage, error) from error
