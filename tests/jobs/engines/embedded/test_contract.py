import pytest

from tests.jobs.engines.contract import PolicyEngineContract
from tests.jobs.engines.embedded.engines import CONFIG, make_engine, make_questions


class TestEmbeddedEngine(PolicyEngineContract):
    @pytest.fixture(params=["qwen2_tied", "llama", "llama+lora", "gpt2"])
    def engine(self, request):
        return make_engine(request.param)

    @pytest.fixture
    def config(self):
        return CONFIG

    @pytest.fixture
    def questions(self):
        return make_questions()
