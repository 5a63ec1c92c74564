import copy
import json
import shutil
import socket

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from exgrpo.jobs.training.engines.embedded.backend import PaddedBackend
from exgrpo.jobs.training.engines.embedded.engine import EmbeddedEngine
from exgrpo.jobs.training.engines.embedded.lora import merge_adapters
from exgrpo.jobs.training.engines.embedded.model import frozen_reference, load_policy, score_sequences
from exgrpo.jobs.training.engines.embedded.packing import TokenSequence
from exgrpo.jobs.training.engines.embedded.sampling import Scoring
from exgrpo.jobs.training.engines.embedded.update import OptimSettings
from exgrpo_core.algorithm import exgrpo_step
from exgrpo_core.errors import EngineError
from exgrpo_core.state import ExGRPOState
from tests.http_server import Answer, answering
from tests.jobs.training.engines.embedded.engines import CONFIG, LORA, EvenTokenReward, make_engine, make_questions
from tests.jobs.training.engines.tiny_models import build_model, build_policy, tiny_tokenizer

pytestmark = pytest.mark.slow

ADAPTED = ["llama+lora", "qwen2_tied+lora", "qwen3+lora"]
SEQUENCES = [
    TokenSequence(question.prompt_ids, np.array([5, 9, 2, 30, 1], dtype=np.int32)) for question in make_questions(4)
]


def log_probs(policy):
    return np.concatenate(score_sequences(policy, SEQUENCES, 1.0).log_probs)


def train(engine, folder, num_steps=2):
    state = ExGRPOState.create(folder, make_questions(), engine._config)
    return [exgrpo_step(state, engine, engine._config).metrics for _ in range(num_steps)]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    build_model("llama").save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def test_training_changes_the_adapters_alone_and_the_seed_decides_them(tmp_path):
    engines = [make_engine("llama+lora", seed=seed) for seed in (3, 3, 4)]
    before = {name: value.clone() for name, value in engines[0].policy.model.named_parameters()}
    for number, engine in enumerate(engines):
        train(engine, tmp_path / str(number))
    after = dict(engines[0].policy.model.named_parameters())
    changed = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert changed == {name for name in before if "lora_" in name}
    assert len(changed) == 2 * len(LORA.target_modules) * 3
    first, same, other = (log_probs(engine.policy) for engine in engines)
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("architecture", ADAPTED)
def test_scores_and_gradients_are_those_of_pefts_own_forward(architecture, tmp_path):
    engine = make_engine(architecture)
    train(engine, tmp_path)
    policy = engine.policy
    gradients = []
    scores = []
    for backend in (policy.backend, PaddedBackend(policy.model, torch.float32)):
        policy.model.zero_grad()
        scored = backend.score(SEQUENCES, Scoring(1.0)).log_probs
        scored.sum().backward()
        scores.append(scored.detach())
        gradients.append([value.grad.clone() for value in policy.model.parameters() if value.requires_grad])
    torch.testing.assert_close(*scores, atol=1e-4, rtol=1e-4)
    assert not np.allclose(scores[0], log_probs(build_policy(architecture.removesuffix("+lora"))), atol=1e-3)
    for mine, pefts in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, pefts, atol=1e-3, rtol=1e-3)


def test_rollouts_follow_the_adapters_after_an_update(tmp_path):
    """Behavior log-probs are of merged copies of the weights: stale ones would leave a gap."""
    metrics = train(make_engine("llama+lora"), tmp_path, num_steps=3)
    assert all(step["generator/log_prob_gap_max"] < 1e-4 for step in metrics)


def test_kl_penalty_is_against_the_weights_without_adapters(tmp_path):
    engine = make_engine("llama+lora", kl_coefficient=0.1)
    first, *_, last = [step["loss/kl"] for step in train(engine, tmp_path / "run", num_steps=3)]
    assert 0.0 <= first < last
    engine.save(tmp_path / "saved")
    resumed = make_engine("llama+lora", kl_coefficient=0.1)
    resumed.restore(tmp_path / "saved")
    reference = log_probs(frozen_reference(resumed.policy))
    np.testing.assert_array_equal(reference, log_probs(build_policy("llama")))
    assert not np.allclose(reference, log_probs(resumed.policy), atol=1e-3)


def test_checkpoint_holds_adapters_only_and_loads_merged(base, tmp_path):
    engine = make_engine("llama+lora")
    train(engine, tmp_path / "run")
    engine.policy.model.peft_config["default"].base_model_name_or_path = str(base)
    engine.save(tmp_path / "saved")
    weights = load_file(tmp_path / "saved" / "adapter_model.safetensors")
    assert {name.rpartition(".lora_")[1] for name in weights} == {".lora_"}
    assert not (tmp_path / "saved" / "model.safetensors").exists()
    loaded = load_policy(str(tmp_path / "saved"), torch.device("cpu"))
    assert type(loaded.model).__name__ == "LlamaForCausalLM"
    assert not [name for name, _ in loaded.model.named_parameters() if "lora" in name]
    np.testing.assert_allclose(log_probs(loaded), log_probs(engine.policy), atol=1e-5)
    pefts = PeftModel.from_pretrained(build_model("llama"), tmp_path / "saved")
    own = {name: value for name, value in pefts.named_parameters() if "lora_" in name}
    assert all(torch.equal(weights[name.replace(".default.", ".")], value) for name, value in own.items())


@pytest.mark.parametrize(("prefix", "layers"), [("base_model.model.", 2), ("_fsdp_wrapped_module.", 3)])
def test_adapters_that_peft_would_leave_out_are_refused_by_name(base, tmp_path, prefix, layers):
    engine = make_engine("llama+lora")
    engine.policy.model.peft_config["default"].base_model_name_or_path = str(base)
    engine.save(tmp_path)
    saved = load_file(tmp_path / "adapter_model.safetensors")
    kept = {name: value for name, value in saved.items() if any(f"layers.{i}." in name for i in range(layers))}
    changed = {name.replace("base_model.model.", prefix): value for name, value in kept.items()}
    save_file(changed, tmp_path / "adapter_model.safetensors")
    with pytest.raises(EngineError, match=r"layers\.\d\..*lora_A"):
        load_policy(str(tmp_path), torch.device("cpu"))


@pytest.fixture
def adapters(base, tmp_path):
    """Saved adapters whose base and revision are written by hand."""
    engine = make_engine("llama+lora")
    engine.policy.model.peft_config["default"].base_model_name_or_path = str(base)
    engine.save(tmp_path / "saved")
    path = tmp_path / "saved" / "adapter_config.json"
    content = json.loads(path.read_text())

    def naming(name, revision=None):
        path.write_text(json.dumps(content | {"base_model_name_or_path": name, "revision": revision}))
        return str(path.parent)

    return naming


@pytest.fixture
def hub(base, tmp_path, monkeypatch):
    """A hub that keeps what it is asked, and a cache that has one model of it."""
    asked = []
    snapshot = tmp_path / "cache" / "models--org--kept" / "snapshots" / "0123456789abcdef0123456789abcdef01234567"
    shutil.copytree(base, snapshot)
    for name in ("main", "v1"):
        path = snapshot.parents[1] / "refs" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(snapshot.name)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(snapshot.parents[2]))
    with answering(lambda request: asked.append(request.path) or Answer("{}", 404)) as origin:
        monkeypatch.setattr(constants, "ENDPOINT", origin)
        monkeypatch.setattr(socket.socket, "connect", lambda _, address: asked.append(address))
        yield asked


@pytest.mark.parametrize(
    ("name", "revision", "command"),
    [
        ("other/model", "v2", "`hf download other/model --revision v2`"),
        ("org/kept", "v2", "`hf download org/kept --revision v2`"), ("gpt2", None, "`hf download gpt2`"),
        ("https://huggingface.co/other/model", None, "is not on this machine"),
        (7, None, "adapters of 7, which is not on this machine"), ("org/kept", 7, "--revision 7"),
    ],
)  # fmt: skip
def test_the_base_that_adapters_name_is_refused_unless_it_is_there_and_no_hub_is_asked(
    adapters, hub, name, revision, command
):
    with pytest.raises(EngineError) as refused:
        load_policy(adapters(name, revision), torch.device("cpu"))
    assert command in str(refused.value)
    assert hub == []


@pytest.mark.parametrize("revision", [None, "0123456789abcdef0123456789abcdef01234567"])
def test_adapters_of_a_model_of_the_hub_that_is_there_are_loaded(adapters, hub, revision):
    assert load_policy(adapters("org/kept", revision), torch.device("cpu")).model.num_parameters() > 0
    assert hub == []


def test_architecture_without_our_decoder_is_refused():
    with pytest.raises(EngineError, match=r"model\.lora"):
        make_engine("gpt2+lora")


def test_checkpoint_of_another_rank_is_refused(tmp_path):
    make_engine("llama+lora").save(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.jobs.training.engines.embedded.engines.LORA", LORA.model_copy(update={"rank": 2}))
        engine = make_engine("llama+lora")
    with pytest.raises(EngineError, match=str(tmp_path)):
        engine.restore(tmp_path)


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning")  # what is tested
@pytest.mark.parametrize(
    ("targets", "options"),
    [
        (["lm_head"], {}), (["embed_tokens", "q_proj"], {}), (["q_proj", "up_proj"], {}),
        (["q_proj"], {"modules_to_save": ["lm_head"]}), (["q_proj"], {"modules_to_save": ["embed_tokens"]}),
        (["q_proj"], {"modules_to_save": ["embed_tokens", "lm_head"]}), (["q_proj", "up_proj"], {"use_dora": True}),
        (["q_proj", "lm_head"], {"use_rslora": True}),
    ],
)  # fmt: skip
def test_merged_adapters_of_tied_embeddings_compute_what_peft_does_and_can_be_trained_and_saved(
    tmp_path, targets, options
):
    base = build_model("qwen2_tied")
    adapted = get_peft_model(copy.deepcopy(base), LoraConfig(r=2, lora_alpha=8, target_modules=targets, **options))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    adapted.save_pretrained(tmp_path / "adapters", save_embedding_layers=False)
    ids = torch.arange(8)[None] % base.config.vocab_size
    with torch.no_grad():
        expected = adapted.eval()(input_ids=ids).logits
        merged = merge_adapters(tmp_path / "adapters", base).eval()
        merged.save_pretrained(tmp_path / "merged")
        again = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32).eval()
        for model in (merged, again):
            assert torch.allclose(model(input_ids=ids).logits, expected, atol=1e-4)
    assert all(parameter.requires_grad for parameter in merged.parameters())


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning")  # what is tested
@pytest.mark.parametrize("targets", [["q_proj"], ["lm_head"]])
def test_full_training_from_adapters_changes_every_weight_and_its_checkpoint_is_the_model(tmp_path, targets):
    base, folder = tmp_path / "base", tmp_path / "adapters"
    for path in (base, folder):
        tiny_tokenizer().save_pretrained(path)
    build_model("qwen2_tied").save_pretrained(base)
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=2, target_modules=targets))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.add_(0.3)
    adapted.save_pretrained(folder, save_embedding_layers=False)
    policy = load_policy(str(folder), torch.device("cpu"))
    engine = EmbeddedEngine(policy, EvenTokenReward(), CONFIG, OptimSettings(learning_rate=2e-3), 0)
    before = {name: value.clone() for name, value in policy.model.named_parameters()}
    engine.imitate(SEQUENCES)
    assert all(not torch.equal(before[name], value) for name, value in policy.model.named_parameters())
    engine.save(tmp_path / "checkpoint")
    again = load_policy(str(tmp_path / "checkpoint"), torch.device("cpu"))
    np.testing.assert_allclose(log_probs(again), log_probs(policy), atol=1e-5)
