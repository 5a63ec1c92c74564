import json

import pytest
from huggingface_hub import constants

from exgrpo.jobs.actions.evaluations import refuse_unknown
from exgrpo.jobs.specs.train import SpecError
from tests.http_server import Answer, answering
from tests.tools import free_port

pytestmark = pytest.mark.slow

KNOWN = "org/known"


def answer(asked):
    """Know one model and one data set of the same name."""
    path = asked.path.partition("?")[0]
    body = json.dumps({"id": KNOWN, "_id": "1", "siblings": [], "tags": [], "private": False})
    if path in [f"/api/{kind}/{KNOWN}" for kind in ("models", "datasets")]:
        return Answer(body)
    error = "RevisionNotFound" if "/revision/" in path else "RepoNotFound"
    return Answer(body, 404, (("X-Error-Code", error),))


@pytest.fixture
def hub(monkeypatch):
    with answering(answer) as origin:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", origin)
        yield


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_known_names_and_what_is_there_pass_and_others_are_refused_by_field(tmp_path, kind):
    refuse_unknown("model", KNOWN, kind=kind)
    refuse_unknown("model", str(tmp_path), kind=kind)
    for source, revision in (("org/unknown", None), (KNOWN, "v9"), ("not a name", None), ("a//b", None), ("-x-", None)):
        with pytest.raises(SpecError) as refused:
            refuse_unknown("field", source, revision, kind)
        assert refused.value.fields == ("field",)
        assert ("pip:PACKAGE" in str(refused.value)) is (kind == "model")


def test_a_hub_that_is_away_or_not_to_be_asked_refuses_nothing(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{free_port()}")
    refuse_unknown("model", "org/unknown")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    refuse_unknown("model", "org/unknown")
