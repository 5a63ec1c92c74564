import os

import pytest

from jobs.cli.workbench import WorkbenchInstance, WorkbenchRunningError, read_workbench


def test_second_workbench_is_told_of_the_first_without_its_token_until_that_ended(tmp_path):
    first = WorkbenchInstance(tmp_path)
    assert read_workbench(tmp_path).address == ""
    with pytest.raises(WorkbenchRunningError):
        WorkbenchInstance(tmp_path)
    first.record_link("http://127.0.0.1:8501/?token=secret")
    with pytest.raises(WorkbenchRunningError) as refused:
        WorkbenchInstance(tmp_path)
    assert f"at http://127.0.0.1:8501/ (pid {os.getpid()}, since" in str(refused.value)
    assert "secret" not in str(refused.value)
    (tmp_path / "workbench" / "workbench.json").write_text("{")
    with pytest.raises(WorkbenchRunningError):
        WorkbenchInstance(tmp_path)
    first.release()
    assert read_workbench(tmp_path) is None
    WorkbenchInstance(tmp_path).release()
