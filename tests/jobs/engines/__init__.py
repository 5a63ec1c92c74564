import pytest

pytest.register_assert_rewrite("tests.jobs.engines.contract")
