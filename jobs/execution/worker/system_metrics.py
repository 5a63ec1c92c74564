"""What the machine does while a run trains: samples of a thread, recorded as metrics of the next step."""

import contextlib
import logging
import threading
import time
from collections.abc import Mapping, Sequence

import psutil

from exgrpo.jobs.machine.hardware import list_gpus

logger = logging.getLogger(__name__)

SAMPLE_SECONDS = 15.0
_MEANS = frozenset({"system/gpu_use", "system/process_cores"})
"""Of these a step has the mean of its samples, of memory the largest."""


class SystemSampler:
    """Samples GPUs, memory and processor of this node every `SAMPLE_SECONDS`; what fails ends the samples, not the run.

    The first samples are closer to each other, so that a short run has curves, too.

    `take` is called once a step: fast steps share a sample, so few have one; a slow step has mean or peak of many.
    """

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._process.cpu_percent()  # from here on the next call counts
        self._samples: list[Mapping[str, float]] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_over, name="system metrics", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """End the thread, which may be in the middle of a sample."""
        self._is_over.set()

    def take(self) -> dict[str, float]:
        """Return the metrics of the samples since the last call, none where there was no sample."""
        samples, self._samples = self._samples, []
        return summarize(samples)

    def _sample_until_over(self) -> None:
        try:
            began_at = time.monotonic()
            while not self._is_over.wait(min(SAMPLE_SECONDS, max(1.0, (time.monotonic() - began_at) / 10))):
                sample = self._sample()  # before `_samples` is read: `take` may replace it during a sample
                self._samples.append(sample)
        except Exception as error:  # noqa: BLE001 - no failure to measure may end a training run
            logger.warning("The machine's use is not recorded any more: %s", error)

    def _sample(self) -> dict[str, float]:
        gib = 2**30
        sample = {
            "system/process_cores": self._process.cpu_percent() / 100.0,
            "system/process_memory_gib": sum(map(_resident, [self._process, *self._process.children(recursive=True)]))
            / gib,
        }
        gpus = list_gpus()
        used = [gpu.busy_percent / 100.0 for gpu in gpus if gpu.busy_percent is not None]
        if used:
            sample["system/gpu_use"] = sum(used) / len(used)
        if gpus:
            sample["system/gpu_memory_gib"] = sum(gpu.used_bytes for gpu in gpus) / gib
        return sample


def summarize(samples: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean or the largest of each measure of the samples."""
    metrics = {}
    for name in sorted({name for sample in samples for name in sample}):
        values = [sample[name] for sample in samples if name in sample]
        metrics[name] = sum(values) / len(values) if name in _MEANS else max(values)
    return metrics


def _resident(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return int(process.memory_info().rss)
    return 0
