"""Everything that reads a file, with contents that once made it crash and with the same few others each time."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.__main__ import CORPUS, read
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_contents_that_once_crashed_are_read_or_refused(path):
    read(TARGETS[path.parent.name], path.read_bytes())


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_changed_files_are_read_or_refused_with_a_sentence(name):
    target = TARGETS[name]

    @settings(max_examples=40, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.deferred(target.tried))
    def attempt(content):
        read(target, content)

    attempt()
