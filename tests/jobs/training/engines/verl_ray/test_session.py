import json
import os
import subprocess
import sys
import warnings
from contextlib import ExitStack
from pathlib import Path

import pytest

from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.training.engines.verl_ray.overrides_from_spec import verl_overrides
from exgrpo_core.errors import EngineError
from tests.conftest import REPOSITORY
from tests.jobs.training.engines.verl_ray.engines import save_tiny_model, tiny_spec

pytestmark = [pytest.mark.verl, pytest.mark.slow]


@pytest.fixture
def config(monkeypatch, tmp_path):
    monkeypatch.setenv("VERL_FILE_LOGGER_ROOT", str(tmp_path))

    def compose(*words):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from exgrpo_core.verl_plugin.session import compose_config

            return compose_config([*verl_overrides(tiny_spec(tmp_path, 1), tmp_path / "run"), *words])

    return compose


def test_verls_own_loggers_get_the_metrics_and_its_console_is_left_to_the_log(config, tmp_path):
    from exgrpo_core.verl_plugin.session import open_verl_loggers

    assert open_verl_loggers(config()) == []
    (logger,) = open_verl_loggers(config("trainer.logger=[console,file]"))
    logger.log({"reward/mean": 0.25}, 3)
    logger.close()
    (file,) = tmp_path.rglob("*.jsonl")
    assert json.loads(file.read_text()) == {"step": 3, "data": {"reward/mean": 0.25}}


@pytest.mark.parametrize("name", ["nowhere", "wandb"])
def test_logger_that_verl_does_not_know_or_that_is_not_installed_is_refused_by_name(config, monkeypatch, name):
    from exgrpo_core.verl_plugin.session import open_verl_loggers

    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(EngineError, match=name):
        open_verl_loggers(config(f"trainer.logger=[console,{name}]"))


def test_a_verl_that_did_not_load_the_plugin_is_refused_and_an_untried_version_warned_of(monkeypatch):
    import verl

    from exgrpo_core.verl_plugin import session

    warned: list[str] = []
    monkeypatch.setattr(session.logger, "warning", warned.append)
    session.check_verl()
    assert warned == []
    monkeypatch.setattr(verl, "__version__", "0.1")
    session.check_verl()
    assert [text.partition(":")[0] for text in warned] == ["verl 0.1"]
    monkeypatch.undo()
    monkeypatch.delitem(sys.modules, session.PLUGIN)
    with pytest.raises(EngineError, match="did not load"):
        session.check_verl()


SESSION = """
import json, os, sys, types, warnings
from multiprocessing.connection import Listener
warnings.simplefilter("ignore")
import ray
from verl.utils.config import omega_conf_to_dataclass
without_vllm = types.SimpleNamespace(VLLM_SLEEP_LEVEL=1)  # it asks for vLLM's version
sys.modules["verl.third_party.vllm"] = without_vllm
from exgrpo_core.verl_plugin.weight_exchange import job_name
from exgrpo_core.verl_plugin.session import compose_config, ray_session

config = compose_config(json.loads(sys.argv[1]))
with ray_session(config, {"NCCL_SOCKET_IFNAME": "lo"}):
    @ray.remote
    def look():
        sys.modules["verl.third_party.vllm"] = without_vllm
        from exgrpo_core.verl_plugin.weight_exchange import WeightAdapter
        os.environ |= {"RANK": "0", "RAY_LOCAL_WORLD_SIZE": "1"}
        with Listener(family="AF_UNIX"):
            pass
        parts = config.actor_rollout_ref
        sender = WeightAdapter(*(omega_conf_to_dataclass(part) for part in (parts.rollout, parts.model)), None)
        return os.environ["NCCL_SOCKET_IFNAME"], os.path.realpath(os.environ["TMPDIR"]), sender.zmq_handle
    print("FOUND", json.dumps([*ray.get(look.remote()), job_name()]), flush=True)
    sys.stdin.readline()
"""


def open_session(words: list[str], folder: Path) -> subprocess.Popen:
    command = [sys.executable, "-P", "-c", SESSION, json.dumps(words)]
    paths = f"{REPOSITORY}{os.pathsep}{folder.parent}"
    environment = os.environ | {"TMPDIR": str(folder), "PYTHONPATH": paths}
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.timeout(1200)
def test_two_rays_on_one_host_live_under_any_temporary_folder_and_share_no_socket(tmp_path):
    model = save_tiny_model(tmp_path / "model")
    words = verl_overrides(tiny_spec(model, 1), tmp_path / "run")
    words = [word for word in words if "custom_reward_function" not in word]
    (tmp_path / "vllm-0.dist-info").mkdir()  # verl asks whether vLLM is installed; senders do without
    (tmp_path / "vllm-0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0\n")
    folders = [tmp_path / name for name in ("short", "long" * 40)]
    for folder in folders:
        folder.mkdir()
    with ExitStack() as at_end:
        sessions = [at_end.enter_context(open_session(words, folder)) for folder in folders]
        for session in sessions:
            at_end.callback(session.kill)
        lines = [next((line for line in session.stdout if line.startswith("FOUND")), "FOUND[]") for session in sessions]
        for session in sessions:
            session.communicate("\n")
    found = [json.loads(line.removeprefix("FOUND")) for line in lines]
    assert [session.returncode for session in sessions] == [0, 0]
    handles = set()
    for folder, (variable, temporary, handle, name) in zip(folders, found, strict=True):
        assert variable == "lo"
        assert Path(temporary).parent == folder.resolve()
        assert handle == f"ipc:///tmp/exgrpo-weights-{name}-replica-0-rank-0.sock"
        handles.add(handle)
        assert [*folder.iterdir()] == []
    assert len(handles) == 2
    assert not [link for link in Path("/tmp").glob("exgrpo-*/ray") if tmp_path in link.resolve().parents]


def test_what_a_tasks_own_code_raises_is_told_from_the_death_of_its_process():
    from ray.exceptions import ActorDiedError, RayTaskError
    from torch.distributed import DistBackendError

    from exgrpo.jobs.training.verl_composition import is_own_error, why_it_ended

    def raised(cause):
        return RayTaskError("task", "traceback", cause, proctitle="task", pid=1, ip="127.0.0.1").as_instanceof_cause()

    assert isinstance(raised(ValueError("odd")), ValueError)
    errors = [raised(ValueError("odd")), raised(ActorDiedError()), ActorDiedError()]
    errors += [raised(DistBackendError("NCCL")), raised(RuntimeError("[/gloo/transport/tcp/pair.cc:553] closed"))]
    assert [is_own_error(error) for error in errors] == [True, False, False, False, False]
    assert ["memory" in why_it_ended(error) for error in errors] == [False, True, True, False, False]
    assert why_it_ended(raised(EngineError("weight exchange: failed."))) == "weight exchange: failed."


COMPILING = """
import json, sys, warnings
warnings.simplefilter("ignore")
import ray, torch
from exgrpo_core.verl_plugin.session import compose_config, ray_session
from exgrpo.jobs.training.verl_composition import process_variables
from tests.jobs.training.engines.verl_ray.engines import tiny_spec

config, variables = compose_config(json.loads(sys.argv[1])), process_variables(tiny_spec(sys.argv[2], 1))
found = []
for _ in range(2):
    with ray_session(config, variables):
        @ray.remote
        def compile():
            from torch._dynamo.utils import counters
            torch.compile(lambda numbers: (numbers.sin() + 1).sum())(torch.ones(8))
            return [counters["inductor"][f"fxgraph_cache_{what}"] for what in ("hit", "miss")]
        found.append(ray.get(compile.remote()))
print("FOUND", json.dumps(found))
"""


@pytest.mark.timeout(1200)
def test_a_resume_compiles_nothing_again_although_the_temporary_folder_of_each_attempt_is_removed(tmp_path):
    model = save_tiny_model(tmp_path / "model")
    words = [
        word for word in verl_overrides(tiny_spec(model, 1), tmp_path / "run") if "custom_reward_function" not in word
    ]
    environment = os.environ | {"EXGRPO_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", COMPILING, json.dumps(words), str(model)]
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    [found] = [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("FOUND")]
    assert not list(tmp_path.glob("exgrpo-ray-*"))
    assert found == [[0, 1], [1, 0]]


@pytest.mark.parametrize(("num_tokens", "is_refused"), [(100, False), (96, False), (95, True), (50, True)])
def test_a_vocabulary_far_beyond_the_tokenizer_is_refused_unless_corrected(tmp_path, num_tokens, is_refused):
    from exgrpo.jobs.training.verl_composition import check_vocabulary

    config = json.loads((save_tiny_model(tmp_path / "model") / "config.json").read_text()) | {"vocab_size": 100}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    spec, folder = tiny_spec(tmp_path / "model", 1), str(tmp_path / "model")
    corrected = apply_settings(spec, ["algorithm.sampler_correction=truncate"])
    check_vocabulary(corrected, folder, num_tokens)
    if not is_refused:
        check_vocabulary(spec, folder, num_tokens)
        return
    with pytest.raises(EngineError, match=f"has 100 token ids and its tokenizer {num_tokens}: vLLM never samples"):
        check_vocabulary(spec, folder, num_tokens)
