"""Rows as columns: how they are put into TransferQueue, and read from what it gives back."""

import numpy as np
import pytest

from exgrpo_core.errors import EngineError

pytestmark = [pytest.mark.verl]


def rows_of(*lengths):
    return [np.arange(length, dtype=np.int32) + 10 * length for length in lengths]


@pytest.mark.parametrize("lengths", [(2, 5, 1), (3, 3)])
def test_a_column_has_its_rows_again_whether_they_are_of_one_length_or_not(lengths):
    import torch

    from exgrpo_core.verl_plugin.rows import _join_rows, split_responses, split_rows

    rows = rows_of(*lengths)
    column = _join_rows(rows)
    assert column.is_nested == (len(set(lengths)) > 1)
    assert column.dtype is torch.int64
    assert [part.tolist() for part in column.unbind()] == [row.tolist() for row in rows]
    assert [part.tolist() for part in split_rows(column, torch.int32)] == [row.tolist() for row in rows]
    # Values of prompt and response, each of the token after it: the first of a response is that of the prompt's last.
    scored = _join_rows([np.array([1.0, 2.0, 3.0, 0.0]), np.array([4.0, 5.0, 0.0])])
    assert [part.tolist() for part in split_responses(scored, [2, 1])] == [[2.0, 3.0], [5.0]]


def test_token_ids_that_differ_are_an_error_that_says_where():
    from exgrpo_core.verl_plugin.rows import _join_rows, check_tokens

    sent = rows_of(2, 3)
    check_tokens(sent, _join_rows(sent), str)
    for changed in ([sent[0], np.array([30, 31, 0], dtype=np.int32)], [sent[0], sent[1][:2]]):
        with pytest.raises(EngineError, match=r"row 1: expected the 3 token ids that were stored, got \d of which 2"):
            check_tokens(sent, _join_rows(changed), lambda position: f"row {position}")
    # As many tokens in all, and equal ones, but cut at another one.
    with pytest.raises(EngineError, match="row 0: expected the 2 token ids"):
        check_tokens(sent, _join_rows(np.split(np.concatenate(sent), [3])), lambda position: f"row {position}")
