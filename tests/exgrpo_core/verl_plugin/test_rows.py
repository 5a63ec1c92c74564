"""Token ids that come back are those that were sent."""

import numpy as np
import pytest

from exgrpo_core.errors import EngineError

pytestmark = [pytest.mark.verl]


def rows_of(*lengths):
    return [np.arange(length, dtype=np.int32) + 10 * length for length in lengths]


def test_token_ids_that_differ_are_an_error_that_says_where():
    from exgrpo_core.verl_plugin.rows import check_tokens

    sent = rows_of(2, 3)
    check_tokens(sent, sent, str)
    for changed in ([sent[0], np.array([30, 31, 0], dtype=np.int32)], [sent[0], sent[1][:2]]):
        with pytest.raises(EngineError, match=r"row 1: expected the 3 token ids that were stored, got \d of which 2"):
            check_tokens(sent, changed, lambda position: f"row {position}")
    # As many tokens in all, and equal ones, but cut at another one.
    with pytest.raises(EngineError, match="row 0: expected the 2 token ids"):
        check_tokens(sent, np.split(np.concatenate(sent), [3]), lambda position: f"row {position}")
