"""The oracle: walks every step of a response to a register chain and runs its code, so validity is known exactly."""

import ast
import re
from dataclasses import dataclass

from exgrpo.jobs.tasks.chains.question_set import LABELS, ChainProblem, write_box

CODE_FENCE = "```"

_STEP = re.compile(r"([a-p])([-+*])(\d{1,3})=(\d{1,3});")
_BOX = re.compile(r"\\boxed\{(-?\d{1,9})\}")
_CODE_BLOCK = re.compile(r"```python\n(.*?\n)```\n", re.DOTALL)
MAX_SOURCE_CHARS = 1000
MAX_DEPTH = 64
MAX_BITS = 256
_ALPHABET = re.compile(r"[a-z0-9=+\-*%() \n]*")


@dataclass(frozen=True, slots=True)
class ChainJudgement:
    """What is true of one response.

    `is_correct`: it has exactly one box and the box holds the answer. `is_valid`: it states the start value, every
    step in order with its right value, then nothing, or one code block that runs and prints the answer, and then the
    right box. `num_good_steps` counts steps before the first fault.
    """

    is_correct: bool
    is_valid: bool
    has_box: bool
    has_code: bool
    num_good_steps: int


def judge_response(problem: ChainProblem, text: str) -> ChainJudgement:
    """Walk the response's steps, run its code and compare its box with the answer."""
    boxes = _BOX.findall(text)
    num_good_steps, position = _walk_steps(problem, text)
    is_complete = num_good_steps == problem.difficulty
    return ChainJudgement(
        is_correct=len(boxes) == 1 and int(boxes[0]) == problem.answer,
        is_valid=is_complete and _is_valid_ending(problem.answer, text[position:]),
        has_box=bool(boxes),
        has_code=CODE_FENCE in text,
        num_good_steps=num_good_steps,
    )


def prints_answer(problem: ChainProblem, text: str) -> bool:
    """Return whether the response's first code block runs and prints the answer and nothing else."""
    block = _CODE_BLOCK.search(text)
    return block is not None and _printed(block.group(1)) == [problem.answer]


def _walk_steps(problem: ChainProblem, text: str) -> tuple[int, int]:
    head = f"{problem.start};"
    if not text.startswith(head):
        return 0, 0
    position = len(head)
    truth = zip(LABELS, problem.operations, problem.register_values(), strict=False)
    for index, (label, operation, value) in enumerate(truth):
        step = _STEP.match(text, position)
        expected = (label, operation.operator, str(operation.operand), str(value))
        if step is None or step.groups() != expected:
            return index, position
        position = step.end()
    return problem.difficulty, position


def _is_valid_ending(answer: int, ending: str) -> bool:
    block = _CODE_BLOCK.match(ending)
    if block is None:
        return ending == write_box(answer)
    return _printed(block.group(1)) == [answer] and ending[block.end() :] == write_box(answer)


def _printed(source: str) -> list[int] | None:
    try:
        return run_program(source)
    except ProgramError:
        return None


class ProgramError(ValueError):
    """The program is outside the language, too large, or fails when run."""


def run_program(source: str) -> list[int]:
    """Return the numbers that the program prints.

    Raises:
        ProgramError: It is not a program of the language, is too large or deep, reads an unset name or divides by 0.
    """
    registers: dict[str, int] = {}
    printed: list[int] = []
    for statement in _parse(source).body:
        _run_statement(statement, registers, printed)
    return printed


def _parse(source: str) -> ast.Module:
    if len(source) > MAX_SOURCE_CHARS or _ALPHABET.fullmatch(source) is None:
        raise ProgramError("The program is too long or has characters outside the language.")
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ProgramError("The program does not parse.") from None


def _run_statement(statement: ast.stmt, registers: dict[str, int], printed: list[int]) -> None:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            registers[name] = _evaluate(value, registers, 0)
        case ast.AugAssign(target=ast.Name(id=name), op=operator, value=value):
            right = _evaluate(value, registers, 0)
            registers[name] = _combine(operator, _read(name, registers), right)
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=[ast.Name(id=name)], keywords=[])):
            printed.append(_read(name, registers))
        case _:
            raise ProgramError(f"Line {statement.lineno} is outside the language.")


def _evaluate(node: ast.expr, registers: dict[str, int], depth: int) -> int:
    if depth > MAX_DEPTH:
        raise ProgramError("The program is nested too deeply.")
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return _bounded(number)
        case ast.Name(id=name):
            return _read(name, registers)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, registers, depth + 1)
        case ast.BinOp(left=left, op=operator, right=right):
            value = _evaluate(left, registers, depth + 1)
            return _combine(operator, value, _evaluate(right, registers, depth + 1))
        case _:
            raise ProgramError(f"Line {node.lineno} has an expression outside the language.")


def _combine(operator: ast.operator, left: int, right: int) -> int:
    match operator:
        case ast.Add():
            return _bounded(left + right)
        case ast.Sub():
            return _bounded(left - right)
        case ast.Mult():
            return _bounded(left * right)
        case ast.Mod() if right != 0:
            return left % right
        case _:
            raise ProgramError("The program divides by 0 or uses an operator outside the language.")


def _read(name: str, registers: dict[str, int]) -> int:
    if name not in registers:
        raise ProgramError(f"The program reads {name} before it is set.")
    return registers[name]


def _bounded(value: int) -> int:
    if value.bit_length() > MAX_BITS:
        raise ProgramError("The program's numbers grow too large.")
    return value
