"""No pickle, no shell, and no code of a model: not in our source, and not by what a user can name."""

import ast
import json
import sys
from types import SimpleNamespace

import pytest
import torch

from exgrpo.jobs.actions.evaluations import plan_evaluation
from exgrpo.jobs.actions.preflight.resolution import resolve
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.any_job import load_any_spec
from exgrpo.jobs.specs.train import SpecError, TrainSpec, load_preset, parse_spec
from exgrpo.jobs.specs.verl import RewardModelSpec
from exgrpo.jobs.training import verl_composition
from exgrpo.jobs.training.engines.embedded.model import load_policy
from exgrpo.jobs.training.engines.embedded.settings_files import refuse_remote_code
from exgrpo.jobs.training.engines.tokenizer import load_tokenizer
from exgrpo.jobs.training.pretrained.model_shapes import CONFIG_FILES, named_code
from exgrpo_core.errors import EngineError
from tests.house.tracked import read, source_files
from tests.jobs.training.engines.tiny_models import qwen2_tied, tiny_tokenizer

pytestmark = pytest.mark.slow

FORBIDDEN_MODULES = {
    "pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib", "jsonpickle", "commands",
}  # fmt: skip
FORBIDDEN_CALLS = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "os.spawnlp", "pty.spawn",
    "subprocess.getoutput", "subprocess.getstatusoutput", "torch.load", "torch.save", "torch.hub.load",
    "yaml.load", "yaml.unsafe_load", "yaml.full_load", "pd.read_pickle", "pandas.read_pickle",
    "asyncio.create_subprocess_shell",
}  # fmt: skip
FORBIDDEN_ARGUMENTS = {("shell", True), ("allow_pickle", True), ("weights_only", False), ("trust_remote_code", True)}
HARMLESS = {
    # Its reader looks up no class that a file names; `test_a_pickle_runs_nothing` shows it.
    "jobs/runs/rollout_formats/torch_dumps.py": ["pickle"],
    # Tensors alone: `weights_only` is true, and false is found by its argument.
    "exgrpo_core/verl_plugin/rank_files.py": ["torch.load"],
}
PROGRAM_STARTERS = {"run", "Popen", "check_output", "check_call", "call"}
CODE_OVERRIDES = (
    "actor_rollout_ref.model.trust_remote_code=True",
    "+actor_rollout_ref.rollout.engine_kwargs.vllm.trust_remote_code=true", "++data.trust_remote_code=1",
    "actor_rollout_ref.model.external_lib=os", "data.custom_cls.path=/tmp/evil.py",
    "data={custom_cls:{path:/tmp/evil.py}}", "reward.custom_reward_function.path=/tmp/evil.py",
    "reward.reward_manager.module.path=/tmp/evil.py",
    "actor_rollout_ref.rollout.agent.agent_loop_config_path=/tmp/evil.yaml",
    "actor_rollout_ref.rollout.multi_turn.function_tool_path=/tmp/evil.py",
    "actor_rollout_ref.rollout.custom_backend_module=evil", "+actor_rollout_ref.actor._target_=os.system",
    "+x={_target_:os.system,command:id}", "hydra.searchpath=[file:///tmp/evil]",
    "+ray_kwargs.ray_init.runtime_env.py_executable=/tmp/evil",
    "+ray_kwargs.ray_init.runtime_env={worker_process_setup_hook:evil.f}",
    "+actor_rollout_ref.rollout.engine_kwargs.vllm.worker_extension_cls=evil.E",
    "reward.sandbox_fusion.url=http://169.254.169.254/",
)  # fmt: skip
ENVIRONMENT_OVERRIDES = (
    "trainer.project_name=${oc.env:EXGRPO_JUDGE_API_KEY}",
    "trainer.project_name='a${ oc.env : EXGRPO_DATABASE_URL }'", 'trainer.project_name="${oc.env:EXGRPO_TOKEN,none}"',
    "+x=[1,${oc.env:HOME}]", "+x={y:${oc.env:HOME}}", "+x=${oc.decode:${oc.env:HOME}}", "+x=${oc.${y}:HOME}",
    "+x=${${y}:HOME}", "+x=${hydra:runtime.cwd}",
)  # fmt: skip
SECRET_NAMES = (
    "HF_TOKEN", "WANDB_API_KEY", "EXGRPO_RAY_TOKEN", "EXGRPO_JUDGE_API_KEY", "EXGRPO_DATABASE_URL", "PGPASSWORD",
    "AWS_SECRET_ACCESS_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "openai_api_key", "DB_PASSWD",
)  # fmt: skip


def dotted(node):
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def unsafe_parts(source):
    """Yield (line, what) of imports and calls that could run what is read."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found = {alias.name.split(".")[0] for alias in node.names} & FORBIDDEN_MODULES
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found = {(node.module or "").split(".")[0]} & FORBIDDEN_MODULES
        elif isinstance(node, ast.Call):
            found = {dotted(node.func)} & FORBIDDEN_CALLS
            given = {(word.arg, word.value.value) for word in node.keywords if isinstance(word.value, ast.Constant)}
            found |= {f"{name}={value}" for name, value in given & FORBIDDEN_ARGUMENTS}
            if dotted(node.func).startswith("subprocess.") and node.func.attr in PROGRAM_STARTERS:
                found |= {"a command line"} if isinstance(node.args[0], ast.Constant | ast.JoinedStr) else set()
        else:
            continue
        yield from ((node.lineno, what) for what in found)


def test_no_source_file_unpickles_evaluates_or_starts_a_shell():
    found = {str(path): parts for path in source_files() if (parts := [what for _, what in unsafe_parts(read(path))])}
    assert found == HARMLESS


@pytest.mark.parametrize(
    "line",
    [
        "import pickle", "from dill import loads", "torch.load(path)", "eval(text)", "f(x, trust_remote_code=True)",
        "subprocess.run(command, shell=True)", "subprocess.run(f'ls {path}')",
    ],
)  # fmt: skip
def test_a_planted_unsafe_line_is_found(line):
    assert list(unsafe_parts(line))


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    qwen2_tied().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    return folder


def plant(folder, name):
    path = folder / name
    content = json.loads(path.read_text()) if path.is_file() else {}
    content["auto_map"] = dict.fromkeys(("AutoConfig", "AutoModelForCausalLM", "AutoTokenizer"), "evil.Evil")
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("name", CONFIG_FILES)
def test_a_model_with_code_of_its_own_is_refused_before_a_job_is_queued(model, tmp_path, name):
    plant(model, name)
    root = tmp_path / "runs"
    fields = {"benchmarks": [{"name": "math500"}]}
    trained = TrainSpec.model_validate({"model": {"source": str(model)}, "data": {"source": "chains"}})
    for entry in (
        lambda: queue_job(root, trained),
        lambda: resolve(trained, root).raise_refusals(),
        lambda: queue_job(root, plan_evaluation(root, str(model), fields, "test")),
    ):
        with pytest.raises(SpecError, match=rf"auto_map in {name}"):
            entry()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("auto_map", {"auto_map": {}}),
        ("auto_map", {"text_config": {"auto_map": {"AutoConfig": "evil.Evil"}}}),
        ("auto_map", {"parts": [{"deep": {"auto_map": "evil.Evil"}}]}),
        ("_attn_implementation", {"_attn_implementation": "org/kernel"}),
        ("attn_implementation", {"attn_implementation": "flash_attention_2|org/kernel"}),
        ("_attn_implementation", {"text_config": {"_attn_implementation": {"": "org/kernel@main:function"}}}),
        (None, {"_attn_implementation": "sdpa", "text_config": {"attn_implementation": {"": "eager"}}}),
    ],
)
def test_code_and_kernels_named_anywhere_in_a_configuration_are_known_by_name(name, content):
    assert named_code(content) == name


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_engines_refuse_it_again_when_they_load_it(model, tmp_path, name):
    plant(model, name)
    for load in (refuse_remote_code, lambda source: load_policy(source, torch.device("cpu"))):
        with pytest.raises(EngineError, match=rf"auto_map in {name}"):
            load(str(model))
    load_tokenizer(str(model))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("is_downloaded", [False, True])
def test_verl_is_given_the_reward_model_that_was_checked_and_none_that_has_code(
    model, monkeypatch, tmp_path, is_downloaded
):
    monkeypatch.setattr(verl_composition, "snapshot_download", lambda _source: str(model))
    # verl itself is not needed: the settings that it would get are looked at.
    settings_alone = SimpleNamespace(compose_config=list)
    monkeypatch.setitem(sys.modules, "exgrpo_core.verl_plugin.session", settings_alone)
    reward_model = RewardModelSpec(source="someone/scorer" if is_downloaded else str(model))
    spec = load_preset("paper-wildchat-if").model_copy(update={"reward_model": reward_model})
    run, data = SimpleNamespace(path=tmp_path), SimpleNamespace(model_source=str(model))
    assert f"reward.reward_model.model_path={model}" in verl_composition._compose(spec, run, data)
    plant(model, "config.json")
    with pytest.raises(EngineError, match=r"auto_map in config\.json"):
        verl_composition._compose(spec, run, data)


def test_overrides_that_load_code_or_read_the_environment_are_refused_in_every_specification(tmp_path):
    for word in CODE_OVERRIDES + ENVIRONMENT_OVERRIDES:
        content = {"engine": "verl", "verl": {"overrides": [word]}}
        with pytest.raises(SpecError, match=r"verl\.overrides\.0: "):
            parse_spec(content, "test")
    imported = RunDirectory.create(tmp_path, TrainSpec())
    imported.spec_path.write_text(json.dumps({"kind": "train"} | content))
    with pytest.raises(SpecError, match=r"verl\.overrides\.0: "):
        load_any_spec(imported.spec_path)
    parse_spec({"engine": "verl", "verl": {"overrides": ["+x=${trainer.nnodes}", "trainer.logger=[console]"]}}, "test")


def test_no_secret_stands_among_a_clusters_variables():
    for name in SECRET_NAMES:
        with pytest.raises(SpecError, match="environment"):
            parse_spec({"engine": "verl", "verl": {"ray": {"environment": {name: "x"}}}}, "test")
    allowed = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "NCCL_DEBUG": "INFO"}
    parse_spec({"engine": "verl", "verl": {"ray": {"environment": allowed}}}, "test")
