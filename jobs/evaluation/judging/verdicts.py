r"""The prompt of a judge, the verdict in the last box of its answer, the issues it names, and the majority of votes."""

import re
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

import yaml

from exgrpo_core.recording.rows import VoteOutcome

MAX_ANSWER_CHARS = 400_000
"""Longer answers are not read."""
_THOUGHT_ENDS = "</think>"
_THOUGHT_BEGINS = "<think>"
_BOX = re.compile(r"\\boxed[ \t]*\{([^{}\n]{0,80}(?:\{[^{}\n]{0,80}\}[^{}\n]{0,80})?)\}")
_FORMATTING = re.compile(r"\\(?:text|textbf|mathrm|mathbf)[ \t]*\{([^{}]*)\}")
_ISSUE_LINE = re.compile(r"^[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t]+(.{1,400})$", re.MULTILINE)
_ISSUE_HEADING = re.compile(r"issues?[ \t]+identified", re.IGNORECASE)
_NO_ISSUE = re.compile(r"\b(?:none|no (?:issues?|errors?|\w+ errors?))\b", re.IGNORECASE)
PROMPT_FILE = Path(__file__).parent / "prompts" / "cot-judge-1.yaml"
MAX_TEXT_CHARS = 200_000
"""Longer problems or solutions are not sent."""
_SLOT = re.compile(r"\{(Problem|Solution)\}")
# Turn marks of chat templates, which a tokenizer recognizes anywhere in a text.
_TURN_MARK = re.compile(r"<(?=[|\uff5c]|/?(?:s|think|bos|eos|start_of_turn|end_of_turn)>)|\[(?=/?INST\])")
# A verdict in the judged text: a judge that only repeats it gives no verdict.
_VERDICT_MARK = re.compile(r"\\boxed(?=[ \t]*\{[^}\n]{0,40}\b(?:yes|no)\b)", re.IGNORECASE)
_WORD_JOINER = "\N{WORD JOINER}"


class IssueClass(StrEnum):
    """The prompt's classes of issues."""

    CALCULATION = "calculation"
    LOGICAL = "logical"
    CONCEPTUAL = "conceptual"
    OMISSION = "omission"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class JudgeVerdict:
    """A vote, the reason where it is unjudged, and the classes of the issues named, each once.

    `fault` says in words which step an oracle found wrong first.
    """

    outcome: VoteOutcome
    reason: str = ""
    issues: tuple[IssueClass, ...] = ()
    fault: str = ""


_VERDICTS = {"yes": VoteOutcome.VALID, "no": VoteOutcome.INVALID}
_ISSUE_WORDS = (
    (IssueClass.CALCULATION, re.compile(r"\bcalculation(?:al)?\b|\bcomputational?\b|\barithmetic\b", re.IGNORECASE)),
    (IssueClass.LOGICAL, re.compile(r"\blogic(?:al)?\b", re.IGNORECASE)),
    (IssueClass.CONCEPTUAL, re.compile(r"\bconceptual\b", re.IGNORECASE)),
    (IssueClass.OMISSION, re.compile(r"\bomissions?\b|\bincomplete(?:ness)?\b", re.IGNORECASE)),
    (IssueClass.OTHER, re.compile(r"\bother\b", re.IGNORECASE)),
)


def read_verdict(answer: str) -> JudgeVerdict:
    r"""Read a judge's whole answer.

    The last box decides, and only as yes or no. Boxes of both kinds, a last box with other content, no box, or an
    unfinished thought give no vote: the answer is unjudged, with the reason.
    """
    if len(answer) > MAX_ANSWER_CHARS:
        return _unjudged("answer_too_long")
    _, _, text = answer.rpartition(_THOUGHT_ENDS)
    if _THOUGHT_BEGINS in text:
        return _unjudged("unfinished_thought")
    issues = find_issues(text)
    boxes = list(_BOX.finditer(text))
    if not boxes:
        return _unjudged("no_box", issues)
    readings = [_FORMATTING.sub(r"\1", box[1]).strip().strip(".*").strip().lower() for box in boxes]
    if text.rfind("\\boxed") != boxes[-1].start() or readings[-1] not in _VERDICTS:
        return _unjudged("last_box_is_no_verdict", issues)
    if set(_VERDICTS) <= set(readings):
        return _unjudged("both_verdicts", issues)
    return JudgeVerdict(_VERDICTS[readings[-1]], "", issues)


def find_issues(answer: str) -> tuple[IssueClass, ...]:
    """Return the classes of the issues listed under the heading that the prompt names, in order of first mention."""
    headings = list(_ISSUE_HEADING.finditer(answer))
    if not headings:
        return ()
    issues: dict[IssueClass, None] = {}
    for line in _ISSUE_LINE.finditer(answer, headings[-1].end()):
        issue = _classify(line[1])
        if issue is not None:
            issues.setdefault(issue)
    return tuple(issues)


def _classify(line: str) -> IssueClass | None:
    label = re.split(r"\s[-\N{EN DASH}\N{EM DASH}]\s", line, maxsplit=1)[0]
    mentions = [(match.start(), issue) for issue, pattern in _ISSUE_WORDS if (match := pattern.search(label))]
    if not mentions or _NO_ISSUE.search(label):
        return None
    return min(mentions)[1]


def _unjudged(reason: str, issues: tuple[IssueClass, ...] = ()) -> JudgeVerdict:
    return JudgeVerdict(VoteOutcome.UNJUDGED, reason, issues)


@dataclass(frozen=True, slots=True)
class JudgePrompt:
    """A version of the prompt: its template with two slots, where it comes from, and the guard before it."""

    name: str
    version: int
    source: str
    guard: str
    template: str

    @property
    def version_name(self) -> str:
        """Name and version, as verdicts carry them."""
        return f"{self.name}-{self.version}"

    def messages(self, problem: str, solution: str) -> list[dict[str, str]]:
        """Return the chat: the guard, then the paper's prompt with both texts between lines that nobody can foresee."""
        nonce = secrets.token_hex(12)
        texts = {"Problem": problem, "Solution": solution}
        # One pass, so that a problem that holds "{Solution}" stays what it is.
        prompt = _SLOT.sub(lambda slot: _fenced(texts[slot[1]], nonce), self.template)
        return [
            {"role": "system", "content": self.guard.replace("{Nonce}", nonce)},
            {"role": "user", "content": prompt},
        ]


@cache
def load_judge_prompt(path: Path = PROMPT_FILE) -> JudgePrompt:
    """Return the prompt of a version's file."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    return JudgePrompt(content["name"], content["version"], content["source"], content["guard"], content["template"])


def disarm(text: str) -> str:
    """Return the text with an invisible joiner inside each boxed verdict and whatever could end a turn of the chat."""
    without_verdicts = _VERDICT_MARK.sub(lambda mark: mark[0] + _WORD_JOINER, text)
    return _TURN_MARK.sub(lambda mark: mark[0] + _WORD_JOINER, without_verdicts)


def _fenced(text: str, nonce: str) -> str:
    encodable = text.encode("utf-8", "replace").decode()  # a lone surrogate has no bytes to be sent as
    return f"<<<{nonce}>>>\n{disarm(encodable)}\n<<<{nonce}>>>"


def decide(outcomes: Iterable[str]) -> bool | None:
    """Return the majority's verdict; unjudged votes do not count, and a tie is no verdict."""
    counts = Counter(outcomes)
    balance = counts[VoteOutcome.VALID] - counts[VoteOutcome.INVALID]
    return None if balance == 0 else balance > 0


def has_flipped(outcomes: Sequence[str]) -> bool:
    """Return whether two votes on the same chain of thought contradict each other."""
    return {VoteOutcome.VALID.value, VoteOutcome.INVALID.value} <= set(outcomes)
