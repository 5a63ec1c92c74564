import json

import pytest

from exgrpo_core.faults import Fault, FaultKind, describe_fault, fault_of

FAULTS = {
    Fault(FaultKind.MISSING, "spec.json"): "spec.json: is missing.",
    Fault(FaultKind.CHANGED, "run.json"): "run.json: differs from what was written (checksum).",
    Fault(FaultKind.UNREADABLE, "spec.json", details="Input/output error."): (
        "spec.json: cannot be read: Input/output error."
    ),
    Fault(FaultKind.OUTSIDE, "../x"): "../x: is outside of the run's folder; use another copy of the run.",
    Fault(FaultKind.DAMAGED_LINE, "a.jsonl", (7,)): "a.jsonl: the line at byte 7 is damaged and was skipped.",
    Fault(FaultKind.MISSING_EVENTS, "a.jsonl", (3, 3)): "a.jsonl: event 3 is missing.",
    Fault(FaultKind.MISSING_EVENTS, "a.jsonl", (3, 5)): "a.jsonl: events 3 to 5 are missing.",
    Fault(FaultKind.NO_END, "outcome.json", details="failed"): (
        "outcome.json: is missing; the last event says failed."
    ),
    Fault(FaultKind.LOST_STEPS, "buffer", (2, 9)): "buffer: its log lacks steps of attempt 2, of which 9 is the last.",
    Fault(FaultKind.LOST_EXPERIENCE, "buffer", details="Step 3 is lost."): "buffer: Step 3 is lost.",
    Fault(FaultKind.NOT_SHOWN, "", details="odd."): (
        "Not all of the run could be read into the database (odd). Its files are kept, and the supervisor tries "
        "again when it starts; `exgrpo db rebuild` builds the database again; if that does not help, report a bug."
    ),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.kind.value)
def test_fault_is_one_sentence_and_comes_back_from_json(fault):
    assert describe_fault(fault) == FAULTS[fault]
    assert fault_of(json.loads(json.dumps(fault.as_record()))) == fault


def test_every_kind_has_a_sentence():
    assert {fault.kind for fault in FAULTS} == set(FaultKind)
