import threading
import time

import psutil
import pytest

from exgrpo.jobs.execution.worker import system_metrics
from exgrpo.jobs.execution.worker.system_metrics import SystemSampler, summarize
from exgrpo.jobs.machine.hardware import Gpu
from exgrpo_core.step_report import METRICS

GIB = 2**30


def sampled(monkeypatch, gpus, every=0.05):
    """Return what a sampler has taken after its first sample, or after its thread ended."""
    monkeypatch.setattr(system_metrics, "SAMPLE_SECONDS", every)
    monkeypatch.setattr(system_metrics, "list_gpus", gpus)
    sampler = SystemSampler()
    sampler.start()
    threads = [thread for thread in threading.enumerate() if thread.name == "system metrics"]  # none that has ended
    taken, end_at = {}, time.monotonic() + 10.0
    while not taken and any(thread.is_alive() for thread in threads) and time.monotonic() < end_at:
        time.sleep(0.01)
        taken = sampler.take()
    sampler.end()
    for thread in threads:
        thread.join()
    return taken or sampler.take()


def test_a_step_has_memory_and_use_of_gpus_and_process(monkeypatch):
    taken = sampled(monkeypatch, lambda: [Gpu(0, "A", 50.0, 3 * GIB, 8 * GIB), Gpu(1, "B", None, GIB, 8 * GIB)])
    assert taken.keys() == {name for name in METRICS if name.startswith("system/")}
    assert (taken["system/gpu_use"], taken["system/gpu_memory_gib"]) == (0.5, 4.0)
    assert 0.5 < taken["system/process_memory_gib"] * GIB / psutil.Process().memory_info().rss < 2.0


def test_a_machine_without_gpus_has_none_of_their_metrics(monkeypatch):
    assert sampled(monkeypatch, list).keys() == {"system/process_cores", "system/process_memory_gib"}


@pytest.mark.parametrize("every", [15.0, 1000.0])
def test_a_run_that_is_shorter_than_the_time_between_samples_has_some(monkeypatch, every):
    assert "system/process_cores" in sampled(monkeypatch, list, every)


def test_a_measure_that_fails_ends_the_samples_and_nothing_else(monkeypatch):
    def fail():
        raise OSError("the driver is gone")

    assert sampled(monkeypatch, fail) == {}


def test_a_step_has_the_mean_use_and_the_largest_memory():
    samples = [
        {"system/process_cores": 1.0, "system/process_memory_gib": 2.0},
        {"system/process_cores": 2.0, "system/process_memory_gib": 1.0, "system/gpu_use": 0.25},
    ]
    assert summarize(samples) == pytest.approx({
        "system/process_cores": 1.5, "system/process_memory_gib": 2.0, "system/gpu_use": 0.25,
    })  # fmt: skip
    assert summarize([]) == {}
