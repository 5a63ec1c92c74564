import pytest

from exgrpo.jobs.actions.drafts import load_draft, save_draft
from exgrpo.jobs.specs.train import SpecError

pytestmark = pytest.mark.slow


def test_draft_that_cannot_run_is_kept_in_the_place_of_the_last_one_and_filled_up_with_defaults(tmp_path):
    save_draft(tmp_path, "a", {"num_steps": 7})
    save_draft(tmp_path, "a", {"num_steps": None, "optim": {"learning_rate": 2e-6}})
    draft = load_draft(tmp_path, "a")
    assert draft["num_steps"] is None
    assert (draft["optim"]["learning_rate"], draft["optim"]["beta1"]) == (2e-6, 0.9)


@pytest.mark.parametrize("name", ["", "../x", "a/b", "x\n", "<b>"])
def test_name_that_is_no_name_is_refused(tmp_path, name):
    with pytest.raises(SpecError, check=lambda error: error.fields == ("name",)):
        save_draft(tmp_path, name, {})
