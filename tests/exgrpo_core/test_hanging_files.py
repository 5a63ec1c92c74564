import contextlib
import os
import threading
import time

import pytest

from exgrpo_core import hanging_files
from exgrpo_core.hanging_files import find_hanging
from tests.hanging import hanging


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(hanging_files, "ANSWER_SECONDS", 0.3)
    paths = [tmp_path / name / "file" for name in "abcd"]
    for path in paths:
        path.parent.mkdir()
        path.touch()
    return paths


def test_a_file_that_hangs_is_named_and_waited_for_once(files):
    assert find_hanging(files) == set()
    with hanging(files[1].parent), hanging(files[2].parent):
        assert find_hanging(files) == {files[1], files[2]}
        began_at = time.monotonic()
        num_threads = threading.active_count()
        for _ in range(50):
            assert find_hanging(files) == {files[1], files[2]}
        assert time.monotonic() - began_at < 50 * hanging_files.ANSWER_SECONDS
        assert threading.active_count() == num_threads
    wait_for_threads()
    assert find_hanging(files) == set()


def wait_for_threads():
    for thread in threading.enumerate():
        if thread.name == "open files":
            thread.join()


def test_a_file_that_answers_as_it_is_given_up_does_not_hang(files, monkeypatch):
    class AnswersFirst(set):
        def add(self, path):
            mount.close()
            wait_for_threads()
            super().add(path)

    monkeypatch.setattr(hanging_files, "_hanging", AnswersFirst())
    with contextlib.ExitStack() as mount:
        mount.enter_context(hanging(files[1].parent))
        assert find_hanging(files) == set()
    assert find_hanging(files) == set()


def test_what_is_missing_a_folder_or_a_pipe_answers(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    names = ("gone", "gone/gone", "pipe", "\0", "\ud800", "x" * 300)
    assert find_hanging([tmp_path, *(tmp_path / name for name in names)]) == set()
