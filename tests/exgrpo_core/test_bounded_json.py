import os
import time
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


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"a": 1, "a": 1}', "a"), ('{"a": 1, "b": {"c": 1, "c": null}}', "c"),
        ('[{"x": 1}, {"y": 1, "x": 2, "y": 3}]', "y"), ('{"\\u0061": 1, "a": 2}', "a"), ('{"": 1, "": 2}', ""),
        ('{"a": [], "b": 1, "c": 2, "a": {}}', "a"),
    ],
)  # fmt: skip
def test_a_field_that_is_there_twice_is_named(text, name):
    with pytest.raises(UnreadableFileError, match=rf"^has the field '{name}' twice; keep one of them\.$"):
        parse_json(text)


def test_the_field_that_appears_twice_is_found_in_a_time_that_grows_with_the_fields():
    names = [f"n{number}" for number in range(20_000)]
    text = "{" + ", ".join(f'"{name}": 1' for name in [*names, names[-1]]) + "}"
    began_at = time.process_time()
    with pytest.raises(UnreadableFileError, match="'n19999' twice"):
        parse_json(text)
    assert time.process_time() - began_at < 2.0


def test_fields_of_one_name_in_several_mappings_are_read_and_the_last_one_where_it_is_asked_for():
    assert parse_json('[{"a": 1}, {"a": {"a": 2}}, {"A": 1, "a": 2}]') == [{"a": 1}, {"a": {"a": 2}}, {"A": 1, "a": 2}]
    assert parse_json('{"a": 1, "a": 2}', takes_last=True) == {"a": 2}


def test_a_number_of_thousands_of_digits_is_refused_in_a_sentence():
    with pytest.raises(UnreadableFileError, match=r"^has a number of thousands of digits; write a smaller one\.$"):
        parse_json('{"a": ' + "1" * 5000 + "}")
    assert parse_json(str(10**400)) == 10**400
