import json

import pytest

from exgrpo_core.checksums import seal, unseal
from jobs.evaluation.regrades import ChangedOutcome, RecordedRegrading, Regrading, read_regradings, write_regrading

CHANGED = ChangedOutcome("amc 1, sample 1", "paper", "wrong", "correct")
RECORDED = RecordedRegrading("paper", "0123", Regrading("run", 4, {"paper": 1}, {"paper": 2}, [CHANGED]))


def test_what_was_written_is_read(tmp_path):
    write_regrading(tmp_path, RECORDED)
    assert read_regradings(tmp_path) == ([RECORDED], [])


@pytest.mark.parametrize(
    "change",
    [
        {"num_answers": "many"}, {"num_correct_after": None}, {"changes": 5}, {"changes": [5]}, {"changes": [{}]},
        {"num_answers": 2**80}, {"num_correct_before": {"paper": -1}}, {"num_correct_before": {"a\ud800": 1}},
    ],
)  # fmt: skip
def test_another_shape_under_a_right_checksum_is_named(tmp_path, change):
    write_regrading(tmp_path, RECORDED)
    (path,) = (tmp_path / "regrades").iterdir()
    path.write_bytes(seal(json.dumps(unseal(path.read_bytes()) | change).encode()))
    fault = "regrades/paper-0123.json: differs from what was written, so it is not shown."
    assert read_regradings(tmp_path) == ([], [fault])
