"""A study of three cells on verl, from its launch in the browser to its figures, on the CPU (`make test-verl-vllm`)."""

import json

import pytest

from exgrpo.jobs.runs.directory import list_run_directories
from tests.app import recorded, web_server
from tests.verl_on_cpu import on_cpu

pytestmark = [pytest.mark.verl_vllm, pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(2400)]

END_MILLISECONDS = 1_800_000
CHANGES = f"""verl.overrides={json.dumps(on_cpu(1)["overrides"])}
verl.seeded_requests=true
model.source=chains-warm
model.device=cpu
data.source=chains
data.template=auto
data.num_questions=16
data.num_held_out=4
data.max_operations=3
verl.gpus_per_node=1
algorithm.batch_size=4
algorithm.mini_batch_size=2
algorithm.max_prompt_tokens=64
algorithm.max_response_tokens=32
num_steps=1
validation.interval=null
validation.samples_per_question=1"""


@pytest.fixture(scope="module")
def workbench(tmp_path_factory):
    root = tmp_path_factory.mktemp("verl-study")
    recorded.record(root)
    with web_server.start_with_supervisor(root) as served:
        yield served
    assert len(list_run_directories(root)) == 3


def test_three_cells_are_launched_followed_and_set_beside_the_paper(open_page):
    watched = open_page("/methods?view=Studies&study=mini-batch-counts&scale=paper")
    page = watched.page
    changes = page.get_by_role("textbox", name="Changes of every new run")
    changes.fill(CHANGES)
    changes.press("Control+Enter")
    page.get_by_text("3 runs take less than an H100 hour").wait_for()
    page.get_by_role("button", name="Launch 3 missing runs").click()
    page.get_by_test_id("stToast").get_by_text("Queued 3 runs").wait_for()
    page.get_by_text("3 of 3 runs finished").wait_for(timeout=END_MILLISECONDS)
    page.get_by_role("tab", name="Next to the paper").click()
    page.get_by_role("button", name="Report as HTML").wait_for()
    assert page.get_by_text("No run has finished yet").count() == 0
    assert watched.errors == []
