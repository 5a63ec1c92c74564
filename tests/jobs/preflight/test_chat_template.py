import pytest

from exgrpo_core.bounded_json import UnreadableFileError
from jobs.preflight.chat_template import read_tokenizer
from jobs.tasks.chains.demonstrators import make_tokenizer

PANICS = (
    b'{"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "continuing_subword_prefix": "###", '
    b'"vocab": {"a": 0, "b": 1}, "merges": [["a", "b"]]}}'
)
"""On this content the reader of the tokenizers library does not raise an error but panics."""


def test_the_file_alone_is_the_tokenizer(tmp_path):
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    assert read_tokenizer(tmp_path / "tokenizer.json").encode("6;a*2=2;").ids == tokenizer.encode("6;a*2=2;")


@pytest.mark.parametrize("content", [b"", b"\xff", b"{}", b"[" * 9000, PANICS])
def test_a_damaged_file_is_one_sentence(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(UnreadableFileError, match=rf"^{path}: is no tokenizer \(.+\); use another copy\.$"):
        read_tokenizer(path)
