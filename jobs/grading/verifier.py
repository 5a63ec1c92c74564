"""The grading process: compares answers by a rule, one at a time, until its input ends.

It is run as a program by `jobs.grading.worker_process` and speaks JSON lines: in, a list of [rule, gold, answer]; out,
`["ready", CPU seconds so far]` and then `[outcome, CPU seconds so far]` for each. Math-Verify's own time limits are
off: they are signals that a worker thread cannot get and that library code in C ignores. The parent's clock kills this
process; should the parent be gone, a kernel alarm on CPU time does.
"""

import contextlib
import json
import logging
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

PARENT_CHECK_SECONDS = 5.0
ALARM_FACTOR = 2.0

Compare = Callable[[str, str], str]


def load_rules() -> dict[str, Compare]:
    """Import Math-Verify and return for each rule its comparison of a gold answer with a given one."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    from jobs.grading.oat.comparison import equals_by_published_rules

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

    def compare_as_rewarded(gold: str, answer: str) -> str:
        parsed = read(answer)
        if not parsed:
            return "unparsed"
        return "correct" if verify(read(gold), parsed, timeout_seconds=None) else "wrong"

    def compare_as_published(gold: str, answer: str) -> str:
        def is_verified(left: str, right: str) -> bool:
            return bool(verify(read_first(left), read_first(right), timeout_seconds=None))

        return "correct" if equals_by_published_rules(gold, answer, is_verified) else "wrong"

    return {"training": compare_as_rewarded, "paper": compare_as_published}


def compare(rules: dict[str, Compare], rule: str, gold: str, answer: str) -> str:
    """Return the outcome by one of the rules; what takes too much memory or nesting is a crash of this answer only."""
    try:
        return rules[rule](gold, answer)
    except (MemoryError, RecursionError):
        return "crash"


def serve(replies: TextIO, seconds_per_answer: float, parent: int) -> None:
    """Answer requests from standard input until it ends or the parent is another process."""
    rules = load_rules()
    _reply(replies, "ready")
    for line in iter(lambda: _next_request(parent), ""):
        for rule, gold, answer in json.loads(line):
            signal.setitimer(signal.ITIMER_PROF, ALARM_FACTOR * seconds_per_answer + 1.0)
            outcome = compare(rules, rule, gold, answer)
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            _reply(replies, outcome)


def _next_request(parent: int) -> str:
    while not select.select([sys.stdin], [], [], PARENT_CHECK_SECONDS)[0]:
        if os.getppid() != parent:
            return ""
    return sys.stdin.readline()


def _reply(replies: TextIO, outcome: str) -> None:
    replies.write(json.dumps([outcome, time.process_time()]) + "\n")
    replies.flush()


def main() -> None:
    """Run with arguments: memory limit in bytes, seconds an answer, the parent's process id."""
    memory_bytes, seconds, parent = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as replies:
        # Whatever a library prints must not get between the replies.
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        with contextlib.suppress(BrokenPipeError):
            serve(replies, seconds, parent)


if __name__ == "__main__":
    main()
