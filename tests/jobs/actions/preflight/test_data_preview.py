import json
import zipfile

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from exgrpo.jobs.actions.preflight.data_preview import preview_data
from exgrpo.jobs.actions.preflight.looks import TEMPLATE_FILE, read_chat_template, read_tokenizer
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import load_preset
from exgrpo.jobs.tasks.chains.demonstrators import make_tokenizer
from exgrpo.jobs.training.data_rows import DataError, iterate_raw_rows
from exgrpo_core.bounded_json import UnreadableFileError
from tests.data_files import verl_row, write_lines

PANICS = (
    b'{"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "continuing_subword_prefix": "###", '
    b'"vocab": {"a": 0, "b": 1}, "merges": [["a", "b"]]}}'
)
"""On this content the reader of the tokenizers library does not raise an error but panics."""
FOUR_QUESTIONS = ["data.num_questions=4", "algorithm.batch_size=4", "algorithm.mini_batch_size=4"]
CONFIG = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100,
    "max_position_embeddings": 4096,
}  # fmt: skip


def spec_of(tmp_path, rows, template="compact", model=None):
    path = write_lines(tmp_path / "train.jsonl", rows)
    spec = load_preset("chains-exgrpo")
    data = spec.data.model_copy(update={"source": str(path), "template": template})
    return spec.model_copy(
        update={"data": data, "model": spec.model.model_copy(update={"source": str(model or "chains-warm")})}
    )


def test_rows_of_a_file_are_put_into_the_template(tmp_path):
    preview = preview_data(spec_of(tmp_path, [verl_row("What is 2 + 2?"), verl_row("1 + 1", "2")], "paper"))
    prompt = preview.questions[0].prompt
    assert "What is 2 + 2?" in prompt
    assert "<think>" in prompt
    assert (preview.questions[0].answer, preview.questions[0].grading) == ("4", "graded as math")
    assert preview.lengths[0] == len(prompt)


def test_chat_messages_are_shown_with_their_roles_and_a_notice(tmp_path):
    spec = spec_of(tmp_path, [verl_row("2 + 2")], "chat")
    for each in (spec, apply_settings(spec, ["model.source=nobody/nothing", "data.template=auto"])):
        preview = preview_data(each)
        assert preview.questions[0].prompt == "user: 2 + 2"
        assert preview.notice


TEMPLATE = (
    "{%- for m in messages %}\n  {%- if m.role == 'tool' %}{% continue %}{% endif %}\n{{ bos_token + m.role }}: "
    "{{ m.content | trim }}{{ eos_token }}\n{% endfor %}{% if add_generation_prompt %}{{ '<|a|>' }}{% endif %}"
)


@pytest.fixture
def chat_model(tmp_path):
    tokenizer = make_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.add_special_tokens({"bos_token": "<s>"})
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path / "model"


@pytest.mark.parametrize("is_inside", [False, True])
def test_prompts_are_in_the_models_chat_template_as_the_tokenizer_renders_them(tmp_path, chat_model, is_inside):
    if is_inside:  # as older versions of transformers save it
        (chat_model / "chat_template.jinja").unlink()
        settings = json.loads((chat_model / "tokenizer_config.json").read_text())
        (chat_model / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": TEMPLATE}))
    preview = preview_data(spec_of(tmp_path, [verl_row("2 + 2 ")], "auto", chat_model))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(chat_model)
    assert preview.questions[0].prompt == tokenizer.apply_chat_template(
        [{"role": "user", "content": "2 + 2 "}], tokenize=False, add_generation_prompt=True
    )
    assert preview.notice == ""


def test_raw_text_to_a_chat_model_is_said(tmp_path, chat_model):
    preview = preview_data(spec_of(tmp_path, [verl_row("2 + 2")], "none", chat_model))
    assert preview.questions[0].prompt == "2 + 2"
    assert "data.template" in preview.notice


def test_template_that_cannot_be_used_is_bad_data(tmp_path, chat_model):
    (chat_model / "chat_template.jinja").write_text("{{ raise_exception('only tools') }}")
    with pytest.raises(DataError):
        preview_data(spec_of(tmp_path, [verl_row("2 + 2")], "auto", chat_model))


def test_lengths_are_tokens_where_the_model_has_a_whole_tokenizer_here(tmp_path):
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    (tmp_path / "model").mkdir()
    tokenizer.save(str(tmp_path / "model" / "tokenizer.json"))
    preview = preview_data(spec_of(tmp_path, [verl_row("one two three")], model=tmp_path / "model"))
    assert (preview.lengths, preview.is_in_tokens) == ((3,), True)
    (tmp_path / "model" / "tokenizer.json").write_bytes(PANICS)
    with pytest.raises(UnreadableFileError):
        preview_data(spec_of(tmp_path, [verl_row("one two three")], model=tmp_path / "model"))


def test_a_data_set_is_streamed_as_one_of_the_hub_is(tmp_path):
    rows = [verl_row(f"question {number}") | {"unused": number} for number in range(5)]
    (tmp_path / "set").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "set" / "train.parquet")
    preview = preview_data(
        apply_settings(spec_of(tmp_path, []), ["model.source=mine", f"data.source={tmp_path}/set", *FOUR_QUESTIONS])
    )
    assert len(preview.lengths) == 4
    assert "question 0" in preview.questions[0].prompt
    assert preview.questions[2].answer == "4"


def test_a_stream_that_does_not_know_its_columns_may_lack_some_and_one_that_breaks_off_is_bad_data(
    tmp_path, monkeypatch
):
    (tmp_path / "train.jsonl").write_text("{no row\n")
    for source in (str(tmp_path), "some/dataset"):
        with pytest.raises(DataError):
            list(iterate_raw_rows(source, "train", streams=True))
    stream = datasets.IterableDataset.from_generator(lambda: iter([verl_row("2 + 2")] * 2))
    assert stream.column_names is None
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: stream)
    assert [number for number, _ in iterate_raw_rows("org/set", "train", streams=True)] == [1, 2]


@pytest.mark.parametrize("streams", [False, True])
def test_a_data_set_of_archives_is_read(tmp_path, streams):
    with zipfile.ZipFile(tmp_path / "train.zip", "w") as archive:
        archive.writestr("train.jsonl", json.dumps(verl_row("2 + 2")) + "\n")
    assert [number for number, _ in iterate_raw_rows(str(tmp_path), "train", streams=streams)] == [1]


def test_a_tokenizers_file_alone_is_the_tokenizer_and_a_damaged_one_is_refused(tmp_path):
    tokenizer, path = make_tokenizer(), tmp_path / "tokenizer.json"
    tokenizer.save_pretrained(tmp_path)
    assert read_tokenizer(path).encode("6;a*2=2;").ids == tokenizer.encode("6;a*2=2;")
    for content in (b"", b"\xff", b"{}", b"[" * 9000, PANICS):
        path.write_bytes(content)
        with pytest.raises(UnreadableFileError):
            read_tokenizer(path)


def test_a_template_file_that_is_too_large_is_no_template(tmp_path):
    with (tmp_path / TEMPLATE_FILE).open("wb") as file:
        file.truncate(1 << 40)
    assert read_chat_template(str(tmp_path)) is None
