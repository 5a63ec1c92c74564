"""Conversations in a run: what a recorder of any loop writes, put into the events of a recorded run."""

from exgrpo.db.ingest import events
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo_core.recording.conversations import as_document, split, text_of
from exgrpo_core.recording.rows import Message
from tests.db.recorded_chains import Response, Step, record_steps
from tests.db.recorded_runs import register

HOSTILE = "<img src=x onerror=alert(1)> </details><script>alert(2)</script> **b** :red[r] $x$ \x1b[31m\u202e"


def called(tool, arguments, answer, *, is_error=False):
    call = Message("assistant", arguments, "tool_call", tool, is_generated=True, num_tokens=9, mean_entropy=0.2)
    return call, Message("tool", answer, "tool_result", tool, is_error=is_error, num_tokens=30)


PROMPT = (Message("system", "You may search the web."), Message("user", "How tall is the tower?"))
SEARCHED = (
    *PROMPT,
    Message("assistant", "I should look first.", "thinking", is_generated=True, num_tokens=5, mean_entropy=0.9),
    *called("web_search", '{"query": "tower height"}', "Timeout after ten seconds", is_error=True),
    *called("web_search", '{"query": "tower"}', "It is 330 m tall"),
    Message("assistant", "It is \\boxed{330} high.", is_generated=True, num_tokens=7, mean_entropy=0.1, reward=1.0),
)
"""Three turns, two calls, the first of which failed."""
RUN_CODE = (
    *PROMPT,
    *called("python", '{"code": "x = 1\\nprint(x)"}', "1"),
    Message("assistant", "Perhaps timeout 330?", is_generated=True, num_tokens=4),
)
"""Two turns and a call."""
NO_TOOLS = (
    *PROMPT, Message("assistant", "Which tower?", is_generated=True), Message("user", f"This one: {HOSTILE}"),
    Message("assistant", "About 330.", is_generated=True),
)  # fmt: skip
HOSTILE_CALL = (
    *PROMPT, Message("assistant", f"\n\n{HOSTILE}", "thinking", is_generated=True),
    *called(HOSTILE, HOSTILE, HOSTILE, is_error=True), Message("assistant", "an image", "image", is_generated=True),
)  # fmt: skip


def ingest(database, runs_root, said, run_id="talks", steps=(), **facts):
    steps = steps or [Step({0: [Response(text=f"plain {number}") for number in range(max(said) + 2)]})]
    run = record_steps(runs_root, steps, run_id)
    register(database, run)
    batch = EventReader(run).read(max_steps=1_000)
    for event in batch.events:
        for row in event.get("trajectories", ()):
            if messages := said.get(row["trajectory_id"]):
                row |= {"messages": as_document(messages), "text": text_of(split(messages)[1])} | facts
    events.ingest_events(database, run.run_id, batch.events, batch.position)
