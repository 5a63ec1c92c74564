"""The tokens that end a response, as a model's files name them."""

from itertools import chain

from exgrpo_core.errors import EngineError

_MAX_TOKEN = 2**31 - 1


def read_end_tokens(source: str, *named: object) -> list[int]:
    """Return the tokens that end a response; each place of a model's files names one, several or none.

    Raises:
        EngineError: None is named, or something that is no token.
    """
    lists = (value if isinstance(value, list) else [value] for value in named if value is not None)
    end_tokens: set[int] = set()
    for token in chain.from_iterable(lists):
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token <= _MAX_TOKEN:
            raise EngineError(
                f"model.source: {source} has the eos_token_id {token!r:.40}; expected the number of a token."
            )
        end_tokens.add(token)
    if not end_tokens:
        raise EngineError(
            f"model.source: {source} names no end-of-sequence token; set eos_token_id in its config.json."
        )
    return sorted(end_tokens)
