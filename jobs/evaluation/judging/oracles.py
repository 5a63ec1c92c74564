"""The verdicts of the built-in tasks' oracles on a chain of thought, and which step is the first wrong one."""

import re

from exgrpo.jobs.evaluation.judging.items import JudgedItem
from exgrpo.jobs.evaluation.judging.verdicts import IssueClass, JudgeVerdict
from exgrpo.jobs.specs.train import CHAINS_SOURCE, WORD_PROBLEMS_SOURCE
from exgrpo.jobs.tasks.chains.oracle import CODE_FENCE, judge_response
from exgrpo.jobs.tasks.chains.question_set import LABELS, ChainProblem, write_step
from exgrpo.jobs.tasks.word_problems import oracle as stories
from exgrpo.jobs.tasks.word_problems.story import Story
from exgrpo.jobs.tasks.word_problems.walk import FaultKind
from exgrpo_core.recording.rows import VoteOutcome

_FAULTS = {
    FaultKind.FALSE: (IssueClass.CALCULATION, "is false"),
    FaultKind.OTHER_COMPUTATION: (IssueClass.LOGICAL, "is true, but computes something else than the story asks for"),
    FaultKind.FROM_NOWHERE: (IssueClass.OMISSION, "uses a number that is neither given nor computed before"),
    FaultKind.NO_ANSWER: (IssueClass.OTHER, "does not box what was computed"),
}
_STEP = re.compile(r"([a-p])([-+*])(\d{1,3})=(\d{1,3});")
_MAX_QUOTED = 120


def judge_item(item: JudgedItem) -> JudgeVerdict:
    """Return the verdict of the task's oracle."""
    return ORACLES.get(str(item.details.get("data_source")), judge_chain)(item)


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
    fault = judgement.first_fault
    issue, words = _FAULTS[fault.kind]
    quoted = item.solution[fault.start : fault.end].strip()[:_MAX_QUOTED]
    return JudgeVerdict(VoteOutcome.INVALID, "", (issue,), f"{quoted or 'The end'} {words}")


def judge_chain(item: JudgedItem) -> JudgeVerdict:
    """Return the exact verdict on one register chain; any other text is unjudged."""
    try:
        problem = ChainProblem.parse(item.problem, int(item.details["modulus"]))
    except (KeyError, TypeError, ValueError):
        return JudgeVerdict(VoteOutcome.UNJUDGED, "no_register_chain")
    judgement = judge_response(problem, item.solution)
    if judgement.is_valid:
        return JudgeVerdict(VoteOutcome.VALID)
    return JudgeVerdict(VoteOutcome.INVALID, "", *_first_fault(problem, item.solution, judgement.num_good_steps))


ORACLES = {CHAINS_SOURCE: judge_chain, WORD_PROBLEMS_SOURCE: judge_story}
"""The oracle of each task that `ORACLE_SOURCES` of `jobs/specs/train.py` offers."""


def _first_fault(problem: ChainProblem, text: str, num_good_steps: int) -> tuple[tuple[IssueClass], str]:
    """Return class and words of the first fault: a wrong value, another operation, a missing step, or a later one."""
    values = problem.register_values()
    good = [write_step(item, problem.operations[item], values[item]) for item in range(num_good_steps)]
    head = f"{problem.start};{''.join(good)}"
    if not text.startswith(head):
        return (IssueClass.OMISSION,), f"The start is not {problem.start}"
    if num_good_steps == problem.difficulty:
        issue = IssueClass.LOGICAL if CODE_FENCE in text else IssueClass.OTHER
        return (issue,), "All steps are correct, but not what follows them"
    operation = problem.operations[num_good_steps]
    wanted = write_step(num_good_steps, operation, values[num_good_steps])
    step = _STEP.match(text, len(head))
    written = text[len(head) :][: len(wanted)] if step is None else step[0]
    said = f"is {written.rstrip(';') or 'missing'}, expected {wanted.rstrip(';')}"
    words = f"Step {num_good_steps + 1} of {problem.difficulty} {said}"
    if step is None:
        return (IssueClass.OMISSION,), words
    is_right_operation = step.groups()[:3] == (LABELS[num_good_steps], operation.operator, str(operation.operand))
    return (IssueClass.CALCULATION if is_right_operation else IssueClass.LOGICAL,), words
