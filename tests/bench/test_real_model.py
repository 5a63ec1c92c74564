import numpy as np
import pytest

from bench import real_model_contender
from bench.real_model_contender import Embedded, sharing_nothing
from jobs.engines.embedded import packing
from jobs.engines.embedded.packing import build_prefix_tree
from jobs.preflight.model_shapes import ModelShape

TINY = ModelShape(32, 64, 2, 4, 2, vocabulary=512, is_tied=True, context=256)


@pytest.mark.parametrize("work", ["on_policy", "exgrpo", "unshared"])
def test_the_embedded_contender_takes_a_step_and_tells_its_parts(work, tmp_path, monkeypatch):
    monkeypatch.setattr(real_model_contender, "SHAPE", TINY)
    done = Embedded("float32", 2, 8, tmp_path).do(work)
    assert done["step_s"] > done["rollout_s"] > 0
    assert done["tokens"] >= 14 * 6
    assert done["log_prob_gap"] < 1e-4
    assert (done["num_candidates"] > 1) == (work == "exgrpo")


def test_rows_share_nothing_while_sharing_is_off():
    rows = [np.array(row, dtype=np.int32) for row in ([7, 8, 1], [7, 8, 2])]
    assert build_prefix_tree(rows).token_ids.tolist() == [7, 8, 1, 2]
    with sharing_nothing():
        assert sorted(packing.build_prefix_tree(rows).token_ids.tolist()) == [1, 2, 7, 7, 8, 8]
    assert packing.build_prefix_tree(rows).token_ids.size == 4
