import shutil
import tempfile

import pytest

from exgrpo.jobs.tasks.grading.answer_grader import AnswerGrader, GradeItem
from exgrpo.jobs.tasks.grading.reward_function import Grade
from tests.jobs.tasks.grading.test_answer_grader import LIMIT, POISONED, SYMBOLIC, TOWER, math_items

pytestmark = [
    pytest.mark.verl,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("default"),  # Ray warns of what it will change
]

ITEMS = [*math_items(), GradeItem("B", r"\boxed{(B)}", "choice"), GradeItem("7/2", TOWER, "math")]


@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray", reason="needs the verl environment")
    folder = tempfile.mkdtemp(prefix="exgrpo-ray-")  # Ray's sockets need a short path
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=folder)
    yield ray
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


def grade_both_ways():
    with AnswerGrader(seconds_per_answer=LIMIT) as grader:
        sides = grader.grade_side_by_side(ITEMS[:-1])
        return grader.grade(ITEMS), [(item.paper.value, item.training.value) for item in sides]


class Judge:
    def grade(self):
        return grade_both_ways()


class AsyncJudge:
    async def grade(self):
        return grade_both_ways()


@pytest.mark.parametrize("judge", [Judge, AsyncJudge])
def test_an_actor_gives_the_same_verdicts_as_this_process(ray, judge):
    outcomes, side_by_side = ray.get(ray.remote(judge).remote().grade.remote(), timeout=300)
    assert outcomes[:-1] == [*(outcome for _, _, outcome in SYMBOLIC), Grade.CORRECT]
    assert outcomes[-1] in POISONED
    assert side_by_side == grade_both_ways()[1]
