import errno
import resource

import pytest

from jobs.control import TrainingError
from jobs.specs import SpecError
from jobs.worker import allow_open_files, explain, load_embedded_loop


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (TrainingError("data.source: is missing.\nmore"), "data.source: is missing."),
        (SpecError("num_steps: expected at least 1"), "num_steps: expected at least 1."),
        (OSError(errno.ENOSPC, "No space left on device"), "The disk is full; make room and resume the run."),
        (MemoryError(), "Memory ran out; choose a smaller batch, model or max_response_tokens."),
        (ValueError("odd"), "ValueError: odd. The whole traceback is in log.txt."),
        (AssertionError(), "AssertionError: no message. The whole traceback is in log.txt."),
    ],
)
def test_failure_becomes_one_sentence(error, sentence):
    assert explain(error) == sentence


@pytest.mark.parametrize("value", ["0", "two", "-1"])
def test_wrong_number_of_threads_is_refused_by_name(monkeypatch, value):
    monkeypatch.setenv("EXGRPO_NUM_THREADS", value)
    with pytest.raises(SpecError, match="EXGRPO_NUM_THREADS: expected a whole number"):
        load_embedded_loop()


def test_a_worker_may_open_as_many_files_as_its_user():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
        allow_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(hard, 65_536), hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
