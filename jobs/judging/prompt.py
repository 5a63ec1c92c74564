"""The judge's prompt: the paper's words around texts that cannot pass for them."""

import re
import secrets
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

PROMPT_FILE = Path(__file__).parent / "prompts" / "cot-judge-1.yaml"
MAX_TEXT_CHARS = 200_000
"""Longer problems or solutions are not sent."""
_SLOT = re.compile(r"\{(Problem|Solution)\}")
# Turn marks of chat templates, which a tokenizer recognizes anywhere in a text.
_TURN_MARK = re.compile(r"<(?=[|\uff5c]|/?(?:s|think|bos|eos|start_of_turn|end_of_turn)>)|\[(?=/?INST\])")
# A verdict in the judged text: a judge that only repeats it gives no verdict.
_VERDICT_MARK = re.compile(r"\\boxed(?=[ \t]*\{[^}\n]{0,40}\b(?:yes|no)\b)", re.IGNORECASE)
_WORD_JOINER = "\N{WORD JOINER}"


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
