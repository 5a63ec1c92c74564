r"""The prompt of a judge, the verdict in the last box of its answer, the issues it names, and the majority of votes."""

import logging
import re
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Self

import yaml

from exgrpo.jobs.evaluation.judging.client import JudgeAnswer, Spending
from exgrpo.jobs.evaluation.judging.items import JudgedItem
from exgrpo.jobs.runs.control import Control
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo_core.faults import describe_fault
from exgrpo_core.recording.recorder import RunRecorder
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


logger = logging.getLogger(__name__)

VOTES_EVENT = "votes"
"""An event with one or several `votes`: the oracle is too fast to wait for the disk after each."""
ASKED_EVENT = "asked"
STARTED_EVENT = "judging"
MAX_KEPT_CHARS = 20_000
"""Of longer answers the end is kept, which has the verdict."""

VoteKey = tuple[str, int]
"""(item, number of the vote from 0)."""


@dataclass(frozen=True, slots=True)
class Vote:
    """One recorded vote: item, judge, outcome, cost, and the text of the answer."""

    item_id: str
    vote: int
    outcome: str
    reason: str
    issues: tuple[str, ...]
    source: str
    source_attempt: int | None
    trajectory_id: int | None
    label: bool | None
    judge: str
    prompt: str
    num_requests: int
    num_tokens: int
    answer: str

    @property
    def key(self) -> VoteKey:
        """Item and number of the vote, which are unique."""
        return self.item_id, self.vote

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Read a recorded vote."""
        values = {name: record[name] for name in cls.__dataclass_fields__}
        return cls(**values | {"issues": tuple(values["issues"])})


@dataclass(frozen=True, slots=True)
class RecordedVotes:
    """Votes of earlier attempts, without answers' texts, and their cost, lost answers included."""

    votes: dict[VoteKey, Vote]
    num_requests: int
    num_tokens: int


def read_recorded_votes(run: RunDirectory) -> RecordedVotes:
    """Return the recorded votes. A request without an answer, after a kill, counts with its largest possible cost."""
    votes: dict[VoteKey, Vote] = {}
    unanswered: Counter[VoteKey] = Counter()
    tokens: dict[VoteKey, int] = {}
    for event in _all_events(run):
        if event["kind"] == ASKED_EVENT:
            key = (event["item_id"], event["vote"])
            unanswered[key] += 1
            tokens[key] = event["num_tokens"]
        elif event["kind"] == VOTES_EVENT:
            for vote in map(Vote.from_record, event["votes"]):
                votes[vote.key] = replace(vote, answer="")
                unanswered[vote.key] -= 1
    lost = {key: count for key, count in unanswered.items() if count > 0}
    return RecordedVotes(
        votes,
        sum(vote.num_requests for vote in votes.values()) + sum(lost.values()),
        sum(vote.num_tokens for vote in votes.values()) + sum(tokens[key] * count for key, count in lost.items()),
    )


def _all_events(run: RunDirectory) -> Iterator[dict[str, Any]]:
    for batch in EventReader(run).batches():
        for fault in batch.faults:
            logger.warning("%s: %s", run.run_id, describe_fault(fault))
        yield from batch.events


@dataclass(slots=True)
class VoteRecords:
    """Records votes of one judge on one source and counts them."""

    _recorder: RunRecorder
    _control: Control
    _source: str
    _judge: str
    _prompt: str
    num_all: int
    num_done: int = 0

    def start(self, num_done: int, spending: Spending | None = None) -> None:
        """Record the number of votes, those of earlier attempts and what these spent."""
        self.num_done = num_done
        fields = {
            "source": self._source,
            "judge": self._judge,
            "prompt": self._prompt,
            "num_votes": self.num_all,
            "num_done": num_done,
            "num_requests": spending.num_requests if spending else 0,
            "num_tokens": spending.num_tokens if spending else 0,
        }
        self._recorder.record(STARTED_EVENT, fields)
        self._control.heartbeat(num_done)

    def record_request(self, item: JudgedItem, vote: int, num_tokens: int) -> None:
        """Record that a request is about to be sent: without an answer it counts as paid for."""
        self._recorder.record(ASKED_EVENT, {"item_id": item.item_id, "vote": vote, "num_tokens": num_tokens})

    def add(self, item: JudgedItem, vote: int, verdict: JudgeVerdict, answer: JudgeAnswer) -> None:
        """Record one vote; it is on disk when this returns."""
        self.add_all([self.make(item, vote, verdict, answer)])

    def add_all(self, votes: Sequence[Vote]) -> None:
        """Record several votes at once; all are on disk when this returns."""
        self._recorder.record(VOTES_EVENT, {"votes": [asdict(vote) for vote in votes]})
        self.num_done += len(votes)
        self._control.heartbeat(self.num_done)

    def make(self, item: JudgedItem, vote: int, verdict: JudgeVerdict, answer: JudgeAnswer) -> Vote:
        """Return the record of one vote."""
        return Vote(
            item_id=item.item_id,
            vote=vote,
            outcome=verdict.outcome.value,
            reason=verdict.reason,
            issues=tuple(issue.value for issue in verdict.issues),
            source=self._source,
            source_attempt=item.attempt,
            trajectory_id=item.trajectory_id,
            label=item.label,
            judge=self._judge,
            prompt=self._prompt,
            num_requests=answer.num_requests,
            num_tokens=answer.num_tokens or 0,
            answer=_storable(answer.text[-MAX_KEPT_CHARS:]),
        )


def _storable(text: str) -> str:
    """Return the text without lone surrogates and NUL, which databases do not accept."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")
