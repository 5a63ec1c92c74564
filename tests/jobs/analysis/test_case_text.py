import json

from markdown_it import MarkdownIt

from db.rows.chains_of_thought import CaseResponse, SnowballCase
from jobs.analysis.case_text import cases_as_json, cases_as_markdown

HOSTILE = "~~~\n# no heading\n~~~~ <b>no markup</b>"
CASE = SnowballCase(
    "run-1", 1, 7, 3, "What is 1 + 1?", "2",
    CaseResponse(5, 7, 1.0, 0.1532, True, False, "2"),
    CaseResponse(6, 7, 1.0, 0.2652, False, True, HOSTILE),
)  # fmt: skip


def test_a_case_is_laid_out_as_in_the_paper():
    text = cases_as_markdown("my set", [CASE])
    assert text.startswith("# Snowball cases: my set\n\n## Case 1\n\nRun run-1, step 7, question 3.\n")
    assert "low entropy**: 0.1532 nats per token, chain of thought valid, without code, trajectory 5" in text
    assert "high entropy**: 0.2652 nats per token, chain of thought invalid, with code" in text


def test_no_text_of_a_model_leaves_its_fence():
    tokens = MarkdownIt().parse(cases_as_markdown("set", [CASE]))
    fences = [token.content for token in tokens if token.type == "fence"]
    assert fences == ["What is 1 + 1?\n", "2\n", "2\n", f"{HOSTILE}\n"]
    assert not any(token.type.startswith("html") for token in tokens)
    assert sum(token.type == "heading_open" for token in tokens) == 2


def test_json_holds_every_field():
    exported = json.loads(cases_as_json("set", [CASE]))
    assert exported["case_set"] == "set"
    assert exported["cases"][0]["high"]["text"] == HOSTILE
    assert exported["cases"][0]["low"]["entropy"] == 0.1532
