import json
import math
import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from exgrpo.db.rows.chains_of_thought import CaseResponse, SnowballCase
from exgrpo.jobs.evaluation.analysis.case_text import as_latex, as_markdown, cases_as_json, excerpts_of

HOSTILE = "~~~\n# no heading\n~~~~ <b>no markup</b>"
CASE = SnowballCase(
    "run-1", 1, 7, 3, "What is 1 + 1?", "2",
    CaseResponse(5, 7, 1.0, 0.1532, True, False, "2"),
    CaseResponse(6, 7, 1.0, 0.2652, False, True, HOSTILE),
)  # fmt: skip
TEX = (
    "\\input{/etc/passwd} \\end{quote} $x_1^2$ 50% & #1 {a} ~ ^ | < > `ls` \"q\" 'r' -- ?`!`\n"
    "\n  indented\ttab\n[optional] *starred*\n\\\\\n"
    "\\boxed{\\frac{1}{2}} x \u2264 2\u00d73 \u221a2 \u00b0 caf\u00e9 \u4f60\u597d "
    f"\U0001f600 \x1b[31m \u202e\n{'long' * 60}\n%\n"
)  # fmt: skip


def test_a_case_is_laid_out_as_in_the_paper():
    text = as_markdown("my\nset", excerpts_of([CASE]))
    assert text.startswith("# my set\n\n## Case 1\n\nRun run-1, step 7, question 3.\n\n**Question**")
    assert "low entropy: 0.1532 nats per token, chain of thought valid, without code, trajectory 5" in text
    assert "high entropy: 0.2652 nats per token, chain of thought invalid, with code" in text


def test_no_text_of_a_model_leaves_its_fence():
    tokens = MarkdownIt().parse(as_markdown("set", excerpts_of([CASE])))
    fences = [token.content for token in tokens if token.type == "fence"]
    assert fences == ["What is 1 + 1?\n", "2\n", "2\n", f"{HOSTILE}\n"]
    assert not any(token.type.startswith("html") for token in tokens)
    assert sum(token.type == "heading_open" for token in tokens) == 2


def test_json_holds_every_field():
    unknown = replace(CASE, low=replace(CASE.low, reward=math.nan))
    exported = json.loads(cases_as_json("set", [CASE, unknown]), parse_constant=pytest.fail)
    assert exported["cases"][1]["low"]["reward"] is None
    assert exported["case_set"] == "set"
    assert exported["cases"][0]["high"]["text"] == HOSTILE
    assert exported["cases"][0]["low"]["entropy"] == 0.1532


def hostile_latex():
    response = CaseResponse(6, 7, 1.0, 0.2652, False, True, TEX)
    everything = "".join(map(chr, [*range(32, 127), *range(0xA0, 0x250), *range(0x2000, 0x2300)]))
    return as_latex(excerpts_of([SnowballCase("run_1", 1, 7, 3, everything, "", CASE.low, response)]))


def test_of_a_text_in_latex_no_character_is_a_command():
    written = hostile_latex()
    body = written.partition("\\ttfamily\\raggedright ")[2]
    assert "\\input" not in body
    assert (
        "\\textbackslash{}input\\{/etc/passwd\\} \\textbackslash{}end\\{quote\\} \\$x\\_1\\textasciicircum{}2\\$"
        in body
    )
    assert "\\mbox{}\\\\{}\n~~indented" in body
    assert "[U+4F60][U+597D]" in body
    left = re.sub(r"^% Characters.*", "", written)
    left = re.sub(
        r"\\ensuremath\{[^}]*\}|\\(begin|end)\{quote\}|\\(paragraph|textbf|ttfamily|raggedright|small|par)\b", "", left
    )
    left = re.sub(
        r"\\(textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar|ldots|allowbreak|mbox|char96)\{\}",
        "",
        left,
    )
    left = re.sub(r"\\\\\{\}|\\[#$%&_{}]", "", left)
    assert not re.search(r"[\\#$%&_^]", left)
    assert left.count("{") == left.count("}")


@pytest.mark.skipif(
    shutil.which("pdflatex") is None, reason="pdflatex is not installed: apt-get install texlive-latex-base"
)
def test_latex_is_set_by_pdflatex_without_an_error(tmp_path):
    (tmp_path / "cases.tex").write_text(hostile_latex(), encoding="utf-8")
    (tmp_path / "a.tex").write_text("\\documentclass{article}\\begin{document}\\input{cases}\\end{document}")
    command = ["pdflatex", "-halt-on-error", "-interaction=batchmode", "a.tex"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=60)
    assert (tmp_path / "a.pdf").is_file(), (tmp_path / "a.log").read_text(errors="replace")[-1500:]
