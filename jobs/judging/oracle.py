"""The oracles of the built-in tasks as judges, so that the chains of thought of these tasks have verdicts."""

import re

from jobs.judging.items import JudgedItem
from jobs.judging.verdict import IssueClass, JudgeVerdict, VoteOutcome
from jobs.specs.train import CHAINS_SOURCE, WORD_PROBLEMS_SOURCE
from jobs.tasks.chains.oracle import CODE_FENCE, judge_response
from jobs.tasks.chains.problem import LABELS, ChainProblem, write_step
from jobs.tasks.word_problems import oracle as stories
from jobs.tasks.word_problems.story import Story
from jobs.tasks.word_problems.walk import FaultKind

_ISSUES = {
    FaultKind.FALSE: IssueClass.CALCULATION,
    FaultKind.OTHER_COMPUTATION: IssueClass.LOGICAL,
    FaultKind.FROM_NOWHERE: IssueClass.OMISSION,
    FaultKind.NO_ANSWER: IssueClass.OTHER,
}
_STEP = re.compile(r"([a-p])([-+*])(\d{1,3})=(\d{1,3});")


def oracle_name(item: JudgedItem) -> str:
    """Return what the oracle of this item's task is called as a judge."""
    return f"{str(item.details.get('data_source', CHAINS_SOURCE)).replace('_', ' ')} oracle"


def judge_item(item: JudgedItem) -> JudgeVerdict:
    """Return the verdict of the task's oracle."""
    is_story = item.details.get("data_source") == WORD_PROBLEMS_SOURCE
    return judge_story(item) if is_story else judge_chain(item)


def judge_story(item: JudgedItem) -> JudgeVerdict:
    """Return the verdict on a chain of thought in English; what has no step that can be read is unjudged."""
    try:
        problem = Story.from_details(item.details).problem
    except ValueError:
        return JudgeVerdict(VoteOutcome.UNJUDGED, "no_word_problem")
    judgement = stories.judge_response(problem, item.solution)
    if judgement.is_valid is None:
        return JudgeVerdict(VoteOutcome.UNJUDGED, "unreadable")
    if judgement.first_fault is None:
        return JudgeVerdict(VoteOutcome.VALID)
    return JudgeVerdict(VoteOutcome.INVALID, "", (_ISSUES[judgement.first_fault.kind],))


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
