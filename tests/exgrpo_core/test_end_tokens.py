import pytest

from exgrpo_core.engine import read_end_tokens
from exgrpo_core.errors import EngineError


def test_each_place_names_one_token_several_or_none():
    assert read_end_tokens("m", [7, 4], None, 4, 1) == [1, 4, 7]


@pytest.mark.parametrize("token", [-1, 2**31, 1.5, "2", True, {}, [2], [None]])
def test_what_is_no_token_is_refused(token):
    with pytest.raises(
        EngineError, match=r"^model.source: m has the eos_token_id .*; expected the number of a token\.$"
    ):
        read_end_tokens("m", 1, [token])


@pytest.mark.parametrize("named", [(), (None,), ([], None)])
def test_a_model_without_one_is_refused(named):
    with pytest.raises(EngineError, match="names no end-of-sequence token; set eos_token_id"):
        read_end_tokens("m", *named)
