import json

import pytest

from exgrpo_core.faults import Fault, FaultKind, describe_fault, fault_of


@pytest.mark.parametrize("kind", FaultKind)
def test_fault_of_each_kind_is_one_sentence_with_all_that_it_knows_and_comes_back_from_json(kind):
    fault = Fault(kind, "" if kind is FaultKind.NOT_SHOWN else "a.jsonl", (3, 5), "odd.")
    sentence = describe_fault(fault)
    assert sentence.startswith(f"{fault.file}: " if fault.file else "Not all")
    assert sentence.endswith(".")
    assert "{" not in sentence
    assert fault_of(json.loads(json.dumps(fault.as_record()))) == fault


@pytest.mark.parametrize(("count", "words"), [(1, "1 line was"), (2, "2 lines were")])
def test_what_was_left_out_is_told_in_the_past(count, words):
    fault = Fault(FaultKind.NOT_RECORDED, "record", (count, 100), "a reason.")
    assert describe_fault(fault) == f"record: {words} left out when this was recorded (a reason)."
