import pytest
from typer.testing import CliRunner

from exgrpo.app.components.new_run import spec_summary
from exgrpo.jobs.actions import branching
from exgrpo.jobs.actions.preflight.memory_estimate import estimate_disk
from exgrpo.jobs.actions.preflight.resolution import RunRefusedError
from exgrpo.jobs.cli.main import app
from exgrpo.jobs.runs.checkpoints import save_checkpoint
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import SpecError, TrainSpec, load_preset
from exgrpo_core.experience_management.replay_buffer import ReplayBuffer

CLI = CliRunner()
HALVES = ["actor_rollout_ref.actor.ulysses_sequence_parallel_size=2"]
CLUSTER = {"ray": {"address": "http://head:8265"}, "attention": "flash", "overrides": HALVES}


def parent_of(root, spec: TrainSpec) -> str:
    def write(checkpoint) -> None:
        checkpoint.experience.mkdir()
        buffer = ReplayBuffer(checkpoint.path.parent.parent / "buffer", 4, 8)
        buffer.snapshot(checkpoint.experience / "buffer.snapshot")
        buffer.close()

    run = RunDirectory.create(root, spec)
    save_checkpoint(run.checkpoints_path, 5, write)
    return run.run_id


def branch(root, run_id, *settings):
    options = [word for setting in settings for word in ("--set", setting)]
    return CLI.invoke(app, ["branch", run_id, "--step", "5", "--runs-root", str(root), *options])


def test_branch_has_the_settings_that_were_changed_and_says_which(tmp_path):
    parent = parent_of(tmp_path, load_preset("chains-exgrpo"))
    result = branch(tmp_path, parent, "optim.learning_rate=2e-5", "algorithm.shaping_beta=0.2", "num_steps=9")
    assert result.exit_code == 0, result.output
    run = RunDirectory.open(tmp_path, result.stdout.split()[0])
    assert (run.spec().optim.learning_rate, run.spec().algorithm.shaping_beta) == (2e-5, 0.2)
    assert run.read_run_info()["parent_run_id"] == parent
    changes = branching.branch_changes(tmp_path, parent, run.spec())
    assert {change.path for change in changes} == {"optim.learning_rate", "algorithm.shaping_beta", "num_steps"}
    printed = [line.partition(":")[0] for line in result.stderr.splitlines()]
    assert printed[:3] == [change.path for change in changes]


@pytest.mark.parametrize(("settings", "num_left"), [([], 10), (["num_steps=5"], 0), (["optim.learning_rate=2e-5"], 10)])
def test_a_branch_needs_what_its_own_steps_need(tmp_path, settings, num_left):
    parent = parent_of(tmp_path, load_preset("chains-exgrpo").model_copy(update={"num_steps": 15}))
    spec = apply_settings(branching.branch_spec(tmp_path, parent, 5), settings)
    preflight = branching.check_branch(tmp_path, parent, 5, spec)
    left = preflight.steps_left(spec)
    assert (preflight.requested.num_steps, left.num_steps) == (spec.num_steps, num_left)
    assert preflight.needs.recordings == estimate_disk(left).total
    per_step = spec.algorithm.batch_size * spec.algorithm.rollouts_per_question
    assert f"at most {num_left * per_step:,} rollouts" in spec_summary.estimate(left)


@pytest.mark.parametrize(
    "setting",
    [
        "data.num_questions=100", "algorithm.rollouts_per_question=4", "model.lora={rank: 4}", "algorithm.seed=9",
        "engine=verl", "num_steps=5", "algorithm.max_response_tokens=8", "verl.gpus_per_node=2",
    ],
)  # fmt: skip
def test_what_a_branch_cannot_change_is_refused_by_its_field(tmp_path, setting):
    parent = parent_of(tmp_path, load_preset("chains-exgrpo"))
    spec = apply_settings(branching.branch_spec(tmp_path, parent, 5), [setting])
    with pytest.raises(RunRefusedError) as refused:
        branching.branch(tmp_path, parent, 5, spec)
    assert refused.value.mistakes[0].fields == (setting.partition("=")[0],)
    assert branch(tmp_path, parent, setting).exit_code == 2


def test_a_run_on_verl_continues_on_another_number_of_gpus(tmp_path):
    parent = parent_of(tmp_path, TrainSpec(name="verl", engine="verl", verl={"gpus_per_node": 4, **CLUSTER}))
    branched = branch(tmp_path, parent, "verl.gpus_per_node=2")
    assert RunDirectory.open(tmp_path, branched.stdout.split()[0]).spec().verl.num_gpus == 2
    spec = apply_settings(branching.branch_spec(tmp_path, parent, 5), ["verl.gpus_per_node=3"])
    with pytest.raises(SpecError) as error:
        branching.branch(tmp_path, parent, 5, spec)
    assert error.value.fields == ("verl.overrides",)
