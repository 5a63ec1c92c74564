"""Words of a search by role: the index holds each once more, joined with the name of who said it."""

import re
from collections.abc import Iterator

LABELS = ("system", "user", "assistant", "thinking", "call", "tool")
"""What `role:` may name: who speaks, or only the thinking or the calls of the assistant."""
TOOL = "uses"
"""Joined with the name of a tool that a trajectory uses."""
CONVERSATION = "isconversation0"
"""A word of every conversation."""
MAX_WORD = 64
_WORD = re.compile(r"\w+", re.UNICODE)
_SCOPE = re.compile(rf"(?:role:({'|'.join(LABELS)})|tool:(\S+))\Z", re.IGNORECASE)


def words_of(text: str) -> list[str]:
    """Return the words that an index finds in a text, none without a letter or digit."""
    return _WORD.findall(text.replace("_", " "))


def labelled(label: str, word: str) -> str:
    """Return the one word that stands for a word of a speaker; long ones are cut."""
    return f"in{label}0{word[:MAX_WORD]}"


def searched(words: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the words of a search: as the index has it, as it is written, and whether plain responses may have it too.

    `role:tool timeout` is the word in what a tool answered, as are all words after it until the next role; `tool:name`
    is any use of this tool. A plain response is the assistant's, and indexed without a role.
    """
    label = ""
    for part in words.split():
        scope = _SCOPE.match(part)
        if scope and scope[1]:
            label = scope[1].lower()
        elif scope:
            yield labelled(TOOL, "".join(words_of(scope[2]))), "", False
        else:
            for word in words_of(part):
                yield labelled(label, word) if label else word, word, label == "assistant"
