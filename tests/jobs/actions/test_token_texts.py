from jobs.actions.token_texts import token_texts
from jobs.runs.checkpoints import save_checkpoint
from jobs.runs.directory import RunDirectory
from jobs.specs.train import TrainSpec
from jobs.tasks.chains.tokenizer import make_tokenizer


def test_texts_of_tokens_add_up_to_the_decoded_text(tmp_path):
    run = RunDirectory.create(tmp_path, TrainSpec(), run_id="one")
    tokenizer = make_tokenizer()

    def save(checkpoint):
        tokenizer.save_pretrained(checkpoint.path / "policy")

    save_checkpoint(run.checkpoints_path, 3, save)
    ids = [*tokenizer.encode("6;a*2=2;\\boxed{9}"), tokenizer.eos_token_id]
    texts = token_texts(run, ids)
    assert len(texts) == len(ids)
    assert "".join(texts) == tokenizer.decode(ids)
    assert texts[0] == "6"


def test_run_without_a_checkpoint_has_no_texts(tmp_path):
    assert token_texts(RunDirectory.create(tmp_path, TrainSpec(), run_id="one"), [1, 2]) is None
