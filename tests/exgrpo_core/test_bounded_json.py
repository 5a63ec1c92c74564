import os

import pytest

from exgrpo_core.bounded_json import MAX_DEPTH, UnreadableFileError, open_plain, parse_json, read_json


def nested(depth):
    return "[" * depth + "]" * depth


def test_json_of_the_greatest_depth_is_read():
    assert parse_json(nested(MAX_DEPTH)) == eval(nested(MAX_DEPTH))


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 500, 200_000])
def test_deeper_json_is_one_sentence(depth):
    with pytest.raises(UnreadableFileError, match="at most 64 levels"):
        parse_json(nested(depth))


def test_deep_mappings_are_refused_and_brackets_in_texts_are_not_counted():
    with pytest.raises(UnreadableFileError, match="levels"):
        parse_json('{"a":' * 100 + "1" + "}" * 100)
    assert parse_json('{"a": "' + "[" * 1000 + '"}') == {"a": "[" * 1000}
    with pytest.raises(UnreadableFileError, match="levels"):
        parse_json('["' + "]" * 1000 + '",' + nested(100) + "]")


@pytest.mark.parametrize("content", ["[" * 200_000, "[1]", "", "\xff", "1" * 5000, "{}" + " " * 100])
def test_a_file_that_holds_no_mapping_is_named(tmp_path, content):
    path = tmp_path / "run.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(UnreadableFileError, match=r"run\.json: "):
        read_json(path, max_bytes=50 if content.startswith("{}") else 1 << 20)


def test_pipes_devices_and_folders_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe", tmp_path / "device", tmp_path):
        with pytest.raises(UnreadableFileError, match="expected a plain file"):
            open_plain(path)
