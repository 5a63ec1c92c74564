"""The exact oracle of register chains as a judge, so that every chain of thought of the task has a true verdict."""

import re

from jobs.judging.items import JudgedItem
from jobs.judging.verdict import IssueClass, JudgeVerdict, VoteOutcome
from jobs.tasks.chains.oracle import CODE_FENCE, judge_response
from jobs.tasks.chains.problem import LABELS, ChainProblem, write_step

ORACLE_MODEL = "chains oracle"
_STEP = re.compile(r"([a-p])([-+*])(\d{1,3})=(\d{1,3});")


def judge_chain(item: JudgedItem) -> JudgeVerdict:
    """Return the exact verdict on one register chain; any other text is unjudged."""
    try:
        problem = ChainProblem.parse(item.problem, int(item.details["modulus"]))
    except (KeyError, TypeError, ValueError):
        return JudgeVerdict(VoteOutcome.UNJUDGED, "no_register_chain")
    judgement = judge_response(problem, item.solution)
    if judgement.is_valid:
        return JudgeVerdict(VoteOutcome.VALID)
    return JudgeVerdict(VoteOutcome.INVALID, "", (_first_fault(problem, item.solution, judgement.num_good_steps),))


def _first_fault(problem: ChainProblem, text: str, num_good_steps: int) -> IssueClass:
    """Return the class of the first fault: a wrong value, a wrong operation, a missing step, or a fault after them."""
    values = problem.register_values()
    good = [write_step(item, problem.operations[item], values[item]) for item in range(num_good_steps)]
    head = f"{problem.start};{''.join(good)}"
    if not text.startswith(head):
        return IssueClass.OMISSION
    if num_good_steps == problem.difficulty:
        return IssueClass.LOGICAL if CODE_FENCE in text else IssueClass.OTHER
    step = _STEP.match(text, len(head))
    if step is None:
        return IssueClass.OMISSION
    operation = problem.operations[num_good_steps]
    is_right_operation = step.groups()[:3] == (LABELS[num_good_steps], operation.operator, str(operation.operand))
    return IssueClass.CALCULATION if is_right_operation else IssueClass.LOGICAL
