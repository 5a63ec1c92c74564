"""Bytes to try: whole files that were changed in a few places, and any JSON."""

import json

from hypothesis import strategies as st

PIECES = (
    b"", b"\x00", b"\xff\xfe", b"null", b"true", b"-1", b"1e999", b"NaN", b"9" * 400, b'"\\ud800"', b"[]", b"{}",
    b"[" * 3000, b'{"a":' * 3000, b'"', b"\n", b",", b"..", b"/", b"\xed\xa0\x80",
    b"!!python/name:os.system", b"&a [*a]",
)  # fmt: skip
"""What parsers stumble over, put in between or in the place of bytes."""

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.sampled_from([-1, 0, 1 << 63, 1 << 80]), st.floats(),
    st.text(max_size=20), st.sampled_from(["", "a/b", "../x", "step", "\ud800", "NaN", "2026-01-01T00:00:00"]),
)  # fmt: skip
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)

_CHANGE = st.tuples(st.floats(0, 1), st.integers(0, 40), st.one_of(st.sampled_from(PIECES), st.binary(max_size=8)))


def changed(seeds):
    return st.builds(
        _apply, st.sampled_from(list(seeds)), st.lists(_CHANGE, max_size=6), st.floats(0, 1) | st.just(1.0)
    )


def _apply(seed, changes, kept):
    content = seed[: round(kept * len(seed))]
    for at, length, piece in changes:
        start = round(at * len(content))
        content = content[:start] + piece + content[start + length :]
    return content


def overwritten(seed, end):
    """Return the seed with up to three bytes or numbers before `end` replaced; all others stay where they are."""
    number = st.sampled_from([0, 1, 1 << 31, 1 << 40, 1 << 63]) | st.integers(0, (1 << 64) - 1)
    piece = st.binary(min_size=1, max_size=2) | st.builds(lambda value: value.to_bytes(8, "little"), number)
    return st.lists(st.tuples(st.integers(0, end - 8), piece), min_size=1, max_size=3).map(
        lambda changes: _overwrite(seed, changes)
    )


def _overwrite(seed, changes):
    content = bytearray(seed)
    for at, piece in changes:
        content[at : at + len(piece)] = piece
    return bytes(content)


def changed_json(seeds):
    changes = st.lists(st.tuples(st.integers(0, 200), JSON), min_size=1, max_size=3)
    return st.builds(_replace, st.sampled_from(list(seeds)), changes)


def _replace(seed, changes):
    content = json.loads(json.dumps(seed))
    for number, value in changes:
        holders = [(content, key) for key in content]
        for holder, key in holders:
            child = holder[key]
            keys = list(child) if isinstance(child, dict) else range(len(child)) if isinstance(child, list) else ()
            holders += [(child, key) for key in keys]
        if holders:
            holder, key = holders[number % len(holders)]
            holder[key] = value
    return json.dumps(content).encode("utf-8", "surrogatepass")
