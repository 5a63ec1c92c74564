import os
import tracemalloc

import pytest

from exgrpo_core.bounded_json import MAX_DEPTH, UnreadableFileError, open_plain, parse_json, read_json, read_plain


def nested(depth):
    return "[" * depth + "]" * depth


def test_json_is_read_up_to_the_greatest_depth_whatever_brackets_its_texts_have():
    assert parse_json(nested(MAX_DEPTH)) == eval(nested(MAX_DEPTH))
    assert parse_json('{"a": "' + "[" * 1000 + '"}') == {"a": "[" * 1000}
    hidden = '["' + "]" * 1000 + '",' + nested(100) + "]"
    for deep in (nested(MAX_DEPTH + 1), nested(200_000), '{"a":' * 100 + "1" + "}" * 100, hidden):
        with pytest.raises(UnreadableFileError):
            parse_json(deep)


@pytest.mark.parametrize("content", ["[" * 200_000, "[1]", "", "\xff", "1" * 5000, "{}" + " " * 100])
def test_a_file_that_holds_no_mapping_is_named(tmp_path, content):
    path = tmp_path / "run.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(UnreadableFileError, match=r"run\.json: "):
        read_json(path, max_bytes=len(content) - 1 if content.startswith("{}") else 1 << 20)
    if content.startswith("{}"):
        assert read_json(path, max_bytes=len(content)) == {}


def test_pipes_devices_and_folders_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe", tmp_path / "device", tmp_path):
        with pytest.raises(UnreadableFileError):
            open_plain(path)


def test_a_small_file_takes_little_memory_however_large_it_may_be(tmp_path):
    path = tmp_path / "outcome.json"
    path.write_bytes(b"{}")
    tracemalloc.start()
    try:
        assert read_plain(path, 1 << 30) == b"{}"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
