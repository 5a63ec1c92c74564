import pytest

pytest.register_assert_rewrite("tests.jobs.training.engines.contract")
