"""Runs the little programs that responses contain, by walking their syntax tree; nothing is ever evaluated by Python.

The language: assignments and augmented assignments to names, `print(NAME)`, integers, parentheses, + - * and %.
"""

import ast
import re

MAX_SOURCE_CHARS = 1000
MAX_DEPTH = 64
MAX_BITS = 256

_ALPHABET = re.compile(r"[a-z0-9=+\-*%() \n]*")


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
