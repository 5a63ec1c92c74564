"""Has the plug-in's trainer, and nothing else, exchange weights with vLLM by `weight_exchange` and `vllm_extension`.

verl imports this module in every process that sends weights (`checkpoint_engine.custom_backend_module`), and the
plug-in's worker does. vLLM's own processes get the extension by its name.
"""

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from time import monotonic
from typing import Any

from omegaconf import DictConfig, open_dict
from verl.workers.rollout.base import _ROLLOUT_REGISTRY

from exgrpo_core.errors import InputError, StoppedError

EXTENSION = "exgrpo_core.verl_plugin.vllm_extension.WeightExtension"
ADAPTER = "exgrpo_core.verl_plugin.weight_exchange.WeightAdapter"
_OF_VLLM = ("vllm", "async")
_VERLS_ADAPTER = "verl.workers.rollout.vllm_rollout.ServerAdapter"

POLL_SECONDS = 0.2
PATIENCE_SECONDS = 30.0
"""A requested stop waits so long for an exchange that is under way, or twice as long as the longest one took."""
END_SECONDS = 10.0
"""Longest wait for the thread after the senders were ended."""


def use_own_exchange(config: DictConfig) -> None:
    """Name the extension in verl's configuration, and this module if the configuration names no other.

    Raises:
        InputError: The configuration names another extension.
    """
    rollout = config.actor_rollout_ref.rollout
    with open_dict(rollout):
        named = rollout.engine_kwargs.vllm.setdefault("worker_extension_cls", EXTENSION)
        if named != EXTENSION:
            raise InputError(
                "actor_rollout_ref.rollout.engine_kwargs.vllm.worker_extension_cls: expected none, got "
                f"{named}, since the plug-in's trainer sends weights to an extension of its own; remove it."
            )
        engine = rollout.checkpoint_engine
        engine.custom_backend_module = engine.custom_backend_module or __name__


class StoppableExchange:
    """Exchanges weights in a thread, so that the caller hears a request to stop meanwhile."""

    def __init__(self) -> None:
        self._longest_seconds = 0.0

    def run(self, send: Callable[[], Any], stop_requested: Callable[[], bool], end: Callable[[], None]) -> None:
        """Call `send`; if a stop is requested and it does not return soon, call `end`, which ends the senders.

        Raises:
            StoppedError: The exchange was given up.
        """
        began_at, sending = monotonic(), _in_thread(send)
        if not self._is_over(sending, stop_requested):
            end()
            wait([sending], timeout=END_SECONDS)
            raise StoppedError("Stopped while weights were sent to the servers.")
        sending.result()
        self._longest_seconds = max(self._longest_seconds, monotonic() - began_at)

    def _is_over(self, sending: "Future[None]", stop_requested: Callable[[], bool]) -> bool:
        patience, asked_at = max(PATIENCE_SECONDS, 2.0 * self._longest_seconds), None
        while not wait([sending], timeout=POLL_SECONDS).done:
            if asked_at is None and stop_requested():
                asked_at = monotonic()
            if asked_at is not None and monotonic() - asked_at > patience:
                return False
        return True


def _in_thread(send: Callable[[], Any]) -> "Future[None]":
    done: Future[None] = Future()

    def call() -> None:
        try:
            send()
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            done.set_exception(error)
        else:
            done.set_result(None)

    Thread(target=call, name="weights", daemon=True).start()
    return done


if _ROLLOUT_REGISTRY[_OF_VLLM] == _VERLS_ADAPTER:
    _ROLLOUT_REGISTRY[_OF_VLLM] = ADAPTER
