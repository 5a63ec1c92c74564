import json

import pytest

from exgrpo.jobs.cli import demo
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.journal import Journal
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import load_preset
from exgrpo.jobs.training.pretrained.sources import CACHE_VARIABLE
from tests.jobs.training.chat_model import make_chat_model
from tests.jobs.training.pretrained.gguf_files import write_gguf

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SMALL = (
    "num_steps=2", "data.num_questions=24", "algorithm.max_prompt_tokens=400", "algorithm.max_response_tokens=100",
    "algorithm.rollouts_per_question=2", "validation.samples_per_question=1",
)  # fmt: skip
OF_WARM_START, OF_OTHERS = "sft.num_facts=80", "data.num_held_out=4"


@pytest.mark.whole
def test_the_demo_trains_two_runs_to_their_end_and_its_last_line_is_json(tmp_path, capsys):
    assert demo.run_demo(tmp_path / "runs", is_headless=True) == 0
    figures = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert list(figures) == ["ExGRPO", "Dr.GRPO"]
    for each in figures.values():
        assert RunDirectory.open(tmp_path / "runs", each["run_id"]).spec().num_steps == each["steps"]
        assert each["avg_at_8_after"] > each["avg_at_8_before"]


def test_both_runs_start_from_the_warm_start_and_the_last_line_is_json(tmp_path, monkeypatch, capsys):
    path = write_gguf(make_chat_model(tmp_path / "model"), tmp_path / "tiny.gguf")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))

    def load_small(name):
        own = OF_WARM_START if name == demo.REAL_WARM_PRESET else OF_OTHERS
        return apply_settings(load_preset(name), [*SMALL, own, f"model.source={path}"])

    monkeypatch.setattr(demo, "load_preset", load_small)
    assert demo.run_demo(tmp_path / "runs", is_headless=True, is_real=True) == 0
    out = capsys.readouterr().out
    figures = json.loads(out.strip().splitlines()[-1])
    assert list(figures) == ["SFT", "ExGRPO", "Dr.GRPO"]
    assert [each["steps"] for each in figures.values()] == [2, 2, 2]
    assert figures["ExGRPO"]["avg_at_8_after"] is not None
    entries, _ = Journal(tmp_path / "runs").read_from(0)
    tagged = {entry.run_id for entry in entries if entry.data.get("tag") == "demo"}
    assert tagged == {each["run_id"] for each in figures.values()}
    warm_id = figures["SFT"]["run_id"]
    for method in ("ExGRPO", "Dr.GRPO"):
        run = RunDirectory.open(tmp_path / "runs", figures[method]["run_id"])
        assert (run.spec().waits_for, run.spec().model.source) == (warm_id, f"{warm_id}@last")
        assert "<|im_start|>assistant" in (run.path / "log.txt").read_text()
