"""The grading process: compares answers by a rule, one at a time, until its input ends.

`exgrpo.jobs.tasks.grading.worker_process` runs it as a program. It imports Math-Verify, tries it once, and then only
forks: a child grades, and when it is killed or dies the next one is there in milliseconds. Children speak JSON lines
over the program's input and output: in, [request's number, list of [rule, gold, answer]]; out, [0, process id] from
each child when it is ready and [request's number, outcome, what decided] for each answer. A child that gets ready while
an answer is waited for says that the answer took the one before it down.

Math-Verify's own time limits are off: they are signals that a worker thread cannot get and that library code in C
ignores. The parent's clock kills the child; should the parent be gone, a kernel alarm on CPU time does.
"""

import contextlib
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TextIO

READY = 0
"""Stands in the place of a request's number, which counts from 1."""
ALARM_FACTOR = 2.0
TRIAL = ("x + 1", "1 + x")
"""Two equal answers, compared once before the first fork: what libraries make at first use is there for every child."""

Compare = Callable[[str, str], tuple[str, str]]
"""Returns an outcome and the rule that decided."""


def load_rules() -> dict[str, Compare]:
    """Import Math-Verify and return for each rule its comparison of a gold answer with a given one."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    from exgrpo.jobs.tasks.grading.equality import decide
    from exgrpo.jobs.tasks.grading.published_rules import equals_by_published_rules

    logging.disable(logging.CRITICAL)
    targets = (LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig())

    def read(answer: str) -> list[Any]:
        found: list[Any] = parse(f"\\boxed{{{answer}}}", targets, parsing_timeout=None)
        return found

    def read_first(answer: str) -> list[Any]:
        found: list[Any] = parse(
            answer, targets, fallback_mode="no_fallback", extraction_mode=["first_match"], parsing_timeout=None
        )
        return found

    def compare_as_rewarded(gold: str, answer: str) -> tuple[str, str]:
        def is_verified(left: list[Any], right: list[Any]) -> bool:
            return bool(verify(left, right, timeout_seconds=None))

        is_equal, rule = decide(gold, answer, read, is_verified)
        return "unparsed" if is_equal is None else "correct" if is_equal else "wrong", rule

    def compare_as_published(gold: str, answer: str) -> tuple[str, str]:
        def is_verified(left: str, right: str) -> bool:
            return bool(verify(read_first(left), read_first(right), timeout_seconds=None))

        return "correct" if equals_by_published_rules(gold, answer, is_verified) else "wrong", "the published rules"

    return {"training": compare_as_rewarded, "paper": compare_as_published}


def compare(rules: dict[str, Compare], rule: str, gold: str, answer: str) -> tuple[str, str]:
    """Return the outcome by one of the rules and what decided; too much memory or nesting is a crash of this answer."""
    try:
        return rules[rule](gold, answer)
    except (MemoryError, RecursionError):
        return "crash", "the limit of memory and nesting"


def serve(rules: dict[str, Compare], replies: TextIO, seconds_per_answer: float) -> None:
    """Answer requests from standard input until it ends."""
    _reply(replies, READY, os.getpid())
    for line in iter(sys.stdin.readline, ""):
        number, comparisons = _read_request(line)
        for rule, gold, answer in comparisons:
            signal.setitimer(signal.ITIMER_PROF, ALARM_FACTOR * seconds_per_answer + 1.0)
            outcome, decided_by = compare(rules, rule, gold, answer)
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            _reply(replies, number, outcome, decided_by)


def keep_serving(serve_once: Callable[[], None]) -> None:
    """Let one child after another serve, until one ends by itself because its input has ended.

    SIGTERM ends the child that serves and then this process.
    """
    child = 0

    def end(_number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        os._exit(0)

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    signal.signal(signal.SIGTERM, end)
    while True:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            serve_once()
            os._exit(0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        _, status = os.waitpid(child, 0)
        # Blocked until there is a child again that can be ended.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        if os.waitstatus_to_exitcode(status) == 0:
            return


def _read_request(line: str) -> tuple[int, list[tuple[str, str, str]]]:
    """Return a request, or one without comparisons: the rest of one whose reader was killed halfway."""
    try:
        number, comparisons = json.loads(line)
        return int(number), [(rule, gold, answer) for rule, gold, answer in comparisons]
    except (ValueError, TypeError):
        return READY, []


def _reply(replies: TextIO, number: int, *content: str | int) -> None:
    replies.write(json.dumps([number, *content]) + "\n")
    replies.flush()


def main() -> None:
    """Run with arguments: memory limit in bytes, seconds an answer."""
    memory_bytes, seconds = int(sys.argv[1]), float(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    rules = load_rules()
    for rule in rules:
        compare(rules, rule, *TRIAL)
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as replies:
        # Whatever a library prints must not get between the replies.
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

        def serve_once() -> None:
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
            with contextlib.suppress(BrokenPipeError):
                serve(rules, replies, seconds)

        keep_serving(serve_once)


if __name__ == "__main__":
    main()
