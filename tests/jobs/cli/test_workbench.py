import os

import pytest

from jobs.cli.workbench import WorkbenchInstance, WorkbenchRunningError, read_workbench


def test_second_workbench_is_told_of_the_first_without_its_token(tmp_path):
    first = WorkbenchInstance(tmp_path)
    first.record_link("http://127.0.0.1:8501/?token=secret")
    with pytest.raises(
        WorkbenchRunningError, match=rf"at http://127\.0\.0\.1:8501/ \(pid {os.getpid()}, since"
    ) as refused:
        WorkbenchInstance(tmp_path)
    assert "secret" not in str(refused.value)
    first.release()


def test_workbench_that_does_not_answer_yet_has_no_address(tmp_path):
    first = WorkbenchInstance(tmp_path)
    assert read_workbench(tmp_path).address == ""
    with pytest.raises(WorkbenchRunningError, match=r"already \(pid"):
        WorkbenchInstance(tmp_path)
    first.release()


def test_workbench_that_ended_is_in_nobodys_way(tmp_path):
    first = WorkbenchInstance(tmp_path)
    first.record_link("http://127.0.0.1:8501/?token=secret")
    first.release()
    assert read_workbench(tmp_path) is None
    WorkbenchInstance(tmp_path).release()


def test_damaged_record_still_keeps_a_second_one_away(tmp_path):
    first = WorkbenchInstance(tmp_path)
    (tmp_path / "workbench" / "workbench.json").write_text("{")
    with pytest.raises(WorkbenchRunningError, match="already; use the link"):
        WorkbenchInstance(tmp_path)
    first.release()
