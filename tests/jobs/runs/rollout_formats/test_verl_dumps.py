import json
import warnings

import numpy as np
import pytest

from exgrpo.jobs.runs.rollout_formats import verl_dumps
from exgrpo.jobs.runs.rollout_formats.formats import find_format
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource, SourceChangedError
from exgrpo_core.recording.rows import Message


def line(question: int, rollout: int, score: object, step: int = 1, **fields) -> str:
    row = {
        "input": f"question {question}", "output": f"answer {rollout} of {question}", "gts": str(question),
        "score": score, "step": step, "uid": f"q{question}_{rollout}_0",
    }  # fmt: skip
    return json.dumps(row | fields, ensure_ascii=False) + "\n"


def read(source):
    return list(verl_dumps.read(source))


def test_each_file_is_a_step_in_the_order_of_numbers_and_a_question_is_a_group(tmp_path):
    (tmp_path / "1.jsonl").write_text(line(0, 0, 1.0) + line(0, 1, 0.0, acc=False, pred="7"))
    (tmp_path / "10.jsonl").write_text(line(1, 0, 1.0, 10).rstrip())
    (tmp_path / "2.jsonl").write_text(line(1, 0, 1.0, 2))
    assert find_format(tmp_path).read is verl_dumps.read
    source = RolloutSource(tmp_path)
    first, second, tenth = read(source)
    assert (first.step, second.step, tenth.step) == (1, 2, 10)
    assert {trajectory.group for trajectory in first.trajectories} == {"q0"}
    right, wrong = first.trajectories
    assert (right.verdict, wrong.verdict, right.reward, wrong.answer) == (None, "wrong", 1.0, "0")
    assert wrong.extra == {"pred": "7"}
    assert right.messages == (Message("user", "question 0"), Message("assistant", "answer 0 of 0", is_generated=True))
    assert (read(source), source.bad.num) == ([], 0)


def test_rows_that_are_written_later_are_read_once_and_a_line_without_its_end_later(tmp_path):
    file, source = tmp_path / "1.jsonl", RolloutSource(tmp_path)
    file.write_text(line(0, 0, 1.0) + line(0, 1, 1.0)[:20])
    [part] = read(source)
    assert len(part.trajectories) == 1
    file.write_text(line(0, 0, 1.0) + line(0, 1, 0.5))
    again = RolloutSource(tmp_path, json.loads(json.dumps(source.positions)))
    [part] = read(again)
    assert [trajectory.reward for trajectory in part.trajectories] == [0.5]
    file.write_text(line(0, 0, 1.0))
    with pytest.raises(SourceChangedError):
        read(again)


@pytest.mark.parametrize(
    "text",
    [
        '{"input": "a", "outp', "[1]", line(0, 0, 1.0, output=None), line(0, 0, "high"), line(0, 0, float("nan")),
        line(0, 0, 1.0, -7), line(0, 0, 1.0, step="x"),
    ],
)  # fmt: skip
def test_bad_rows_are_left_out_and_named_by_file_and_line(tmp_path, text):
    (tmp_path / "1.jsonl").write_text(f"{line(0, 0, 1.0)}{text}\n{line(0, 1, 1.0)}")
    source = RolloutSource(tmp_path)
    [step] = read(source)
    assert len(step.trajectories) == 2
    [sentence] = source.bad.sentences
    assert sentence.startswith("1.jsonl, line 2: ")


@pytest.mark.verl
@pytest.mark.slow
def test_what_verl_itself_dumps_is_read(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # libraries that verl looks for and does not find
        trainer_base = pytest.importorskip("verl.trainer.ppo.v1.trainer_base", reason="needs the verl environment")
    trainer_base.PPOTrainer._write_generations(
        inputs=["q0", "q0", "q1"], outputs=["a\n\u2028b", "", "\u00fc"], gts=["4", None, 5],
        scores=[1.0, 0.0, np.float32(0.5)], reward_extra_infos_dict={"uid": ["0-a_0_0", "0-a_1_0", "0-b_0_0"]},
        dump_path=str(tmp_path), global_steps=3,
    )  # fmt: skip
    assert find_format(tmp_path).read is verl_dumps.read
    [step] = read(RolloutSource(tmp_path))
    found = [
        (row.group, row.messages[0].text, row.messages[1].text, row.answer, row.reward) for row in step.trajectories
    ]
    assert (step.step, found) == (
        3,
        [("0-a", "q0", "a\n\u2028b", "4", 1.0), ("0-a", "q0", "", None, 0.0), ("0-b", "q1", "\u00fc", "5", 0.5)],
    )
