import sys

import pytest

from exgrpo.jobs.actions.token_texts import token_texts
from exgrpo.jobs.runs.checkpoints import save_checkpoint
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.train import ModelSpec, TrainSpec
from exgrpo.jobs.tasks.chains.demonstrators import make_tokenizer
from tests.jobs.actions.preflight.test_data_preview import PANICS


def test_texts_of_tokens_add_up_to_the_decoded_text(tmp_path):
    run = RunDirectory.create(tmp_path, TrainSpec(), run_id="one")
    tokenizer = make_tokenizer()
    save_checkpoint(run.checkpoints_path, 3, lambda checkpoint: tokenizer.save_pretrained(checkpoint.policy) and None)
    ids = [*tokenizer.encode("6;a*2=2;\\boxed{9}"), tokenizer.eos_token_id]
    texts = token_texts(run, ids)
    assert len(texts) == len(ids)
    assert "".join(texts) == tokenizer.decode(ids)
    assert texts[0] == "6"


@pytest.mark.parametrize("content", [b"{}", PANICS, None])
def test_a_damaged_or_missing_tokenizer_gives_no_texts(tmp_path, content):
    (tmp_path / "source").mkdir()
    if content is not None:
        (tmp_path / "source" / "tokenizer.json").write_bytes(content)
    spec = TrainSpec(model=ModelSpec(source=str(tmp_path / "source")))
    assert token_texts(RunDirectory.create(tmp_path, spec, run_id="one"), [1, 2]) is None


def test_before_the_first_checkpoint_the_model_that_the_run_starts_from_has_the_tokenizer(tmp_path):
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(tmp_path / "source")
    spec = TrainSpec(model=ModelSpec(source=str(tmp_path / "source")))
    run = RunDirectory.create(tmp_path, spec, run_id="one")
    ids = tokenizer.encode("Q3;")
    assert "".join(token_texts(run, ids)) == "Q3;"
    waiting = RunDirectory.create(tmp_path, TrainSpec(model=ModelSpec(source="one@last")), run_id="two")
    assert token_texts(waiting, ids) is None
    tokenizer.save_pretrained(waiting.path / "model" / "one" / "step-00000002")
    assert "".join(token_texts(waiting, ids)) == "Q3;"


def test_without_the_package_tokenizers_there_are_no_texts(tmp_path, monkeypatch):
    make_tokenizer().save_pretrained(tmp_path / "source")
    run = RunDirectory.create(tmp_path, TrainSpec(model=ModelSpec(source=str(tmp_path / "source"))), run_id="one")
    assert token_texts(run, [1]) is not None
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert token_texts(run, [1]) is None
