"""Noisy demonstrators, the imperfect solutions that the warm start learns from, and the tokenizer of their texts."""

import random
import re
from dataclasses import dataclass

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers  # type: ignore[import-untyped]
from transformers import PreTrainedTokenizerFast

from exgrpo.jobs.tasks.chains.question_set import LABELS, ChainProblem, Operation, draw_operation, write_box, write_step

REGISTER_NAMES = "xyvt"
BASE_ERROR = {"+": 0.06, "-": 0.12, "*": 0.22}
LARGE_OPERAND_ERROR = 0.12
LARGE_VALUE_ERROR = 0.08
LARGE_DIGIT = 7
MAX_ERROR = 0.6
NEAR_MISSES = (1, -1, 2, -2, 5)
SLOPPY_FACTOR = 1.5
WRONG_CODE_RATE = 0.5
KNOWN_ANSWER_RATE = 0.6


@dataclass(frozen=True, slots=True)
class Demonstrators:
    """Shares of the kinds of solution; the rest is a plain chain. `error_scale` multiplies the error rate of a fact."""

    code_only: float = 0.10
    """Code and an answer without any step."""
    sloppy_with_code: float = 0.15
    """A chain with more errors, then needless code, wrong half of the time."""
    skipping: float = 0.05
    """Right steps up to some place, then straight to the correct answer."""
    error_scale: float = 1.0
    """Sets the warm model's Pass@1: the higher, the lower."""
    max_error: float = MAX_ERROR
    """Highest error rate of a fact."""


def error_rate(value: int, operation: Operation, scale: float, max_error: float = MAX_ERROR) -> float:
    """Return how often a demonstrator gets this fact wrong: more for products and large digits."""
    rate = BASE_ERROR[operation.operator]
    rate += LARGE_OPERAND_ERROR if operation.operand >= LARGE_DIGIT else 0.0
    rate += LARGE_VALUE_ERROR if value % 10 >= LARGE_DIGIT else 0.0
    return min(max_error, rate * scale)


def write_demonstration(problem: ChainProblem, rng: random.Random, demonstrators: Demonstrators) -> str:
    """Return one demonstrator's solution of `problem`, correct or wrong."""
    kind = rng.random()
    code_share = demonstrators.code_only
    sloppy_share = code_share + demonstrators.sloppy_with_code
    if kind < code_share:
        return _write_code_only(problem, rng)
    if kind < sloppy_share:
        chain, answer = write_noisy_chain(
            problem, rng, demonstrators.error_scale * SLOPPY_FACTOR, demonstrators.max_error
        )
        return chain + write_code(problem, rng, WRONG_CODE_RATE) + write_box(answer)
    if kind < sloppy_share + demonstrators.skipping:
        return _write_skipping_chain(problem, rng) + write_box(problem.answer)
    chain, answer = write_noisy_chain(problem, rng, demonstrators.error_scale, demonstrators.max_error)
    return chain + write_box(answer)


def write_noisy_chain(
    problem: ChainProblem, rng: random.Random, scale: float, max_error: float = MAX_ERROR
) -> tuple[str, int]:
    """Return a whole chain of steps with near-miss errors, and the value that it ends with."""
    value = problem.start
    parts = [f"{value};"]
    for index, operation in enumerate(problem.operations):
        outcome = operation.apply(value)
        if rng.random() < error_rate(value, operation, scale, max_error):
            outcome += rng.choice(NEAR_MISSES)
        value = outcome % problem.modulus
        parts.append(write_step(index, operation, value))
    return "".join(parts), value


def write_code(problem: ChainProblem, rng: random.Random, wrong_rate: float = 0.0) -> str:
    """Return a code block that computes the answer in one of three styles, with one wrong operation at `wrong_rate`."""
    operations = list(problem.operations)
    if rng.random() < wrong_rate:
        operations[rng.randrange(len(operations))] = draw_operation(rng)
    register = rng.choice(REGISTER_NAMES)
    num_lines = rng.choice((0, min(3, len(operations)), len(operations)))
    lines = [f"{register}{operation.operator}={operation.operand}" for operation in operations[:num_lines]]
    if num_lines == 0:
        lines = [f"{register}={_nest(str(problem.start), operations)}%{problem.modulus}"]
    else:
        rest = operations[num_lines:]
        nested = [f"{register}={_nest(register, rest)}"] if rest else []
        lines = [f"{register}={problem.start}", *lines, *nested, f"{register}%={problem.modulus}"]
    return "```python\n" + "".join(line + "\n" for line in lines) + f"print({register})\n```\n"


def _nest(start: str, operations: list[Operation]) -> str:
    return "(" * len(operations) + start + "".join(f"{operator}{operand})" for operator, operand in operations)


def _write_code_only(problem: ChainProblem, rng: random.Random) -> str:
    knows_answer = rng.random() < KNOWN_ANSWER_RATE
    answer = problem.answer if knows_answer else rng.randrange(problem.modulus)
    return write_code(problem, rng) + write_box(answer)


def _write_skipping_chain(problem: ChainProblem, rng: random.Random) -> str:
    num_steps = rng.randrange(problem.difficulty)
    pairs = zip(problem.operations[:num_steps], problem.register_values(), strict=False)
    return f"{problem.start};" + "".join(write_step(index, *pair) for index, pair in enumerate(pairs))


PAD_TOKEN = "<pad>"
END_TOKEN = "<eos>"
UNKNOWN_TOKEN = "<unk>"
SPECIAL_TOKENS = (PAD_TOKEN, END_TOKEN, UNKNOWN_TOKEN)
TEXT_TOKENS = (
    *("Q", ":", "\n", "\\boxed{", "}", "```python\n", "```\n", "print("),
    *(")", "(", "%", "=", ";", "+", "-", "*"),
    *"0123456789",
    *REGISTER_NAMES,
    *LABELS,
)
MAX_TOKENS = 512


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer; decoding gives back the encoded text exactly, and encoding a decoded text its tokens."""
    vocabulary = {token: number for number, token in enumerate((*SPECIAL_TOKENS, *TEXT_TOKENS))}
    longest_first = sorted(TEXT_TOKENS, key=len, reverse=True)
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN_TOKEN))
    pattern = Regex("|".join(re.escape(token).replace("\\\n", "\n") for token in longest_first))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(pattern, behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token=PAD_TOKEN,
        eos_token=END_TOKEN,
        unk_token=UNKNOWN_TOKEN,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_TOKENS,
    )
