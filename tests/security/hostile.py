"""Texts that try to be more than text, and a runs root whose every text is one."""

import json
import random

from exgrpo.db.rows.chains_of_thought import SavedCase
from exgrpo.db.rows.trajectories import MarkedTrajectory
from exgrpo.jobs.actions import annotations, run_actions
from exgrpo.jobs.execution.supervisor.indexing import ingest_all
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo_core.bounded_json import seal
from exgrpo_core.types import Question
from tests.app import judged, played, recorded, scored
from tests.app.recorded import RecordedRun

EVIL = "http://evil.example"
PAYLOADS = (
    "<script>window.pwned=1;alert(1)</script>", f"<img class=pwned src={EVIL}/a.png onerror=alert(1)>",
    "<img class=pwned src=x onerror=alert(1)>", "<b class=pwned onmouseover=alert(1)>b</b>",
    f"<iframe class=pwned src={EVIL}></iframe>",
    "<iframe class=pwned srcdoc='<script>parent.pwned=1</script>'></iframe>", f"<a class=pwned href={EVIL}>link</a>",
    "<a class=pwned href='javascript:alert(1)'>link</a>", f"<link class=pwned rel=stylesheet href={EVIL}/a.css>",
    f"<meta class=pwned http-equiv=refresh content='0;url={EVIL}'>",
    f"<form class=pwned action={EVIL}><button>go</button></form>", f"<object class=pwned data={EVIL}></object>",
    f"<video class=pwned src={EVIL}/a.mp4 autoplay onerror=alert(1)></video>",
    "<style class=pwned>body{display:none}</style>", f"<style>@import '{EVIL}/a.css'</style>",
    "<details class=pwned open ontoggle=alert(1)>x</details>", "<input class=pwned autofocus onfocus=alert(1)>",
    "</code></pre></div><img class=pwned src=x onerror=alert(1)>", "'\"><img class=pwned src=x onerror=alert(1)>",
    "<!--><img class=pwned src=x onerror=alert(1)>-->", "&lt;img class=pwned src=x onerror=alert(1)&gt;",
    "<base class=pwned href=//evil.example/>", "<svg class=pwned onload=alert(1)></svg>",
    f"<svg class=pwned><image href={EVIL}/a.svg /></svg>", "<svg class=pwned><script>alert(1)</script></svg>",
    "<svg class=pwned><a xlink:href='javascript:alert(1)'><text>x</text></a></svg>",
    "<math class=pwned><mtext><img class=pwned src=x onerror=alert(1)></mtext></math>", f"![pwned-md]({EVIL}/a.png)",
    f"[pwned-md]({EVIL})", "[pwned-md](javascript:alert(1))", f"[![pwned-md]({EVIL}/a.png)]({EVIL})",
    f"<{EVIL}/pwned-md>", f"{EVIL}/pwned-md", f"[pwned-md][1]\n\n[1]: {EVIL}", "**pwned-md** ~~pwned-md~~ _pwned-md_",
    "\n\n# pwned-md\n\n> pwned-md\n\n- pwned-md\n\n| pwned-md |\n|---|\n| pwned-md |\n",
    ":red[pwned-md] :red-background[pwned-md] :rainbow[pwned-md] :red-badge[pwned-md]",
    ":material/delete: :streamlit: :smile:", "```html\n<img class=pwned src=x onerror=alert(1)>\n```",
    "$\\text{pwned-md}$ $$\\text{pwned-md}$$",
    f"$\\href{{{EVIL}}}{{pwned-md}}$ $\\href{{javascript:alert(1)}}{{pwned-md}}$",
    f"$\\includegraphics{{{EVIL}/a.png}}$ \\[\\url{{{EVIL}}}\\]",
    f"\\(\\htmlClass{{pwned}}{{x}}\\) \\(\\htmlData{{onclick=alert(1)}}{{x}}\\) \\(\\href{{{EVIL}}}{{x}}\\)",
    "$\\def\\x{\\x\\x}\\x$", "\x1b[31mred\x1b[0m \x1b]8;;http://evil.example\x07link\x1b]8;;\x07 \x1b[2J\x07",
    "\u202egnp.exe\u202c \u2066x\u2069 \u200f \u061c \ufeff", "a\x00b\x08c\x7fd\x9be",
    "=HYPERLINK(\"http://evil.example\",\"x\")", "@SUM(1+1)*cmd|'/c calc'!A0", "+1+cmd|'/c calc'!A0",
    "-1+cmd|'/c calc'!A0",
)  # fmt: skip
"""HTML, SVG and MathML, Markdown and Streamlit's own marks, LaTeX, terminals and reading order, formulas."""
ALL = "\n".join(PAYLOADS)
RUN = "run-hostile-all"
PLAYED = "play-hostile"
THOUGHTS = judged.JUDGED


class HostileEngine(played.TalkingEngine):
    """Every trajectory says every payload, and is judged in one."""

    def _trajectory(self, question):
        made = super()._trajectory(question)
        made.text = f"{ALL}\n\\boxed{{7}}"
        made.verdict = random.Random(made.token_ids.size).choice(PAYLOADS)
        return made


def question(index):
    made = played_question(index)
    return Question(index, f"{PAYLOADS[index]} {index}", made.prompt_ids, f"{ALL} {index}", ALL)


played_question = played.question


def build(runs_root, monkeypatch):
    runs_root.mkdir(exist_ok=True)
    for module in (recorded, played, judged, scored):
        monkeypatch.setattr(module, "HOSTILE", ALL)
    monkeypatch.setattr(played, "TalkingEngine", HostileEngine)
    monkeypatch.setattr(played, "question", question)
    scored.record_all(runs_root)
    judged.record_all(runs_root)
    played.play(runs_root, RecordedRun(PLAYED, ALL, "finished", 5, reason=ALL))
    one_each = [RecordedRun(f"run-hostile-{n}", text, "queued", 0) for n, text in enumerate(PAYLOADS)]
    recorded.record(runs_root, RecordedRun(RUN, ALL, "failed", 2, reason=ALL), *one_each)
    _name_files(runs_root)
    _annotate(runs_root)
    ingest_all(runs_root, None)


def _name_files(runs_root):
    """Let the specification and the log of a run name files as no one would."""
    run = RunDirectory.open(runs_root, RUN)
    content = json.loads(run.spec_path.read_text())
    content["model"]["source"] = content["data"]["source"] = f"{PAYLOADS[2]} {PAYLOADS[28]}.jsonl"
    content["preset"] = PAYLOADS[2]
    run.info_path.write_bytes(seal(json.dumps(run.read_run_info()).encode()))
    run.spec_path.write_text(json.dumps(content))
    run.log_path.write_text(ALL)


def _annotate(runs_root):
    for text in PAYLOADS:
        run_actions.note(runs_root, RUN, text)
        if text.isprintable() and len(text) <= run_actions.MAX_TAG_CHARACTERS:
            run_actions.tag(runs_root, RUN, text)
        if text.isprintable() and len(text) <= annotations.MAX_NAME_CHARACTERS:
            annotations.mark_trajectory(runs_root, MarkedTrajectory(PLAYED, 1, 1, text, ALL))
            annotations.mark_case(runs_root, text, SavedCase(THOUGHTS, 1, 5, 7))
