import numpy as np
import pytest

from exgrpo_core.experience_management.storage.checksums import CHECKSUMS

TOKENS = np.array([1, 2, 3], dtype="<i4")

WRITTEN = {"crc32": [0xB0E02293, 0xC478CB1C], "xxh3": [0x332BEA48, 0x93B7B194]}
"""What buffers on disk hold of these tokens, begun with 0 and with 7: with others no stored run could be read."""


@pytest.mark.parametrize("name", CHECKSUMS)
def test_checksums_are_those_that_stored_buffers_hold(name):
    assert CHECKSUMS[name]([TOKENS, TOKENS], [0, 7]).tolist() == WRITTEN[name]
