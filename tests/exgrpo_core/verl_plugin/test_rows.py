"""Token ids that come back are those that were sent."""

import numpy as np
import pytest

from exgrpo_core.errors import EngineError

pytestmark = [pytest.mark.verl]


def rows_of(*lengths):
    return [np.arange(length, dtype=np.int32) + 10 * length for length in lengths]


def test_token_ids_that_differ_are_an_error_that_says_where():
    from exgrpo_core.verl_plugin.rows import check_tokens, token_checksums

    prompts, responses = rows_of(2, 3), rows_of(4, 1)

    def check(other_prompts, other_responses):
        check_tokens(prompts, responses, token_checksums(other_prompts, other_responses), lambda i: f"row {i}")

    check([prompt.copy() for prompt in prompts], responses)
    changed = np.array([30, 31, 0], dtype=np.int32)
    for other_prompts in ([prompts[0], changed], [prompts[0], prompts[1][:2]]):
        with pytest.raises(EngineError) as error:
            check(other_prompts, responses)
        assert str(error.value).startswith("row 1: ")
    # As many tokens in all, and equal ones, but cut at another one.
    moved = np.split(np.concatenate([prompts[0], responses[0]]), [3])
    with pytest.raises(EngineError) as error:
        check([moved[0], prompts[1]], [moved[1], responses[1]])
    assert str(error.value).startswith("row 0: ")
