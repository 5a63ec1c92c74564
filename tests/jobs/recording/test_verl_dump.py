import warnings

import numpy as np
import pytest

from jobs.recording.verl_dump import DumpedRollout, read_dump

pytestmark = [pytest.mark.verl, pytest.mark.slow]


def test_what_verl_itself_dumps_is_read(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # libraries that verl looks for and does not find
        trainer_base = pytest.importorskip("verl.trainer.ppo.v1.trainer_base", reason="needs the verl environment")
    trainer_base.PPOTrainer._write_generations(
        inputs=["q0", "q0", "q1"],
        outputs=["a\n\u2028b", "", "\u00fc"],
        gts=["4", None, 5],
        scores=[1.0, 0.0, np.float32(0.5)],
        reward_extra_infos_dict={"uid": ["0-a_0_0", "0-a_1_0", "0-b_0_0"]},
        dump_path=str(tmp_path),
        global_steps=3,
    )
    (step,) = read_dump(tmp_path)
    assert (step.step, step.bad_lines) == (3, [])
    assert step.rollouts == [
        DumpedRollout("0-a", "q0", "a\n\u2028b", "4", 1.0),
        DumpedRollout("0-a", "q0", "", "", 0.0),
        DumpedRollout("0-b", "q1", "\u00fc", "5", 0.5),
    ]
