"""Rollouts of other programs are opened from the page of runs: a preview first, then a run."""

import json

import pytest

from tests.app.page_texts import has_text

pytestmark = pytest.mark.slow

MAPPING = "prompt: $.q\nresponse: $.a\nreward: $.points\n"


@pytest.fixture
def form(recorded_runs, open_page, tmp_path):  # noqa: ARG001 - the page's runs
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(json.dumps({"q": "1 + 1?", "a": f"so {n}", "points": n}) + "\n" for n in range(3)) + "bad\n"
    )
    page = open_page("runs")
    page.text_input(key="rollouts-path").input(str(rows)).run()
    return page


def run_folders(root):
    return {path.parent.name for path in root.glob("*/run.json")}


def test_what_is_of_no_known_format_is_refused_in_a_sentence_and_a_mapping_opens_it_as_a_run(form, recorded_runs):
    before = run_folders(recorded_runs)
    form.button(key="rollouts-preview").click().run()
    assert has_text(form, "rows.jsonl: holds no rollouts of a known format")
    form.text_area(key="rollouts-format").input(MAPPING.replace("reward: $.points", "")).run()
    form.button(key="rollouts-preview").click().run()
    assert "Question 1 · not graded" in [caption.value for caption in form.caption]
    form.text_area(key="rollouts-format").input(MAPPING).run()
    form.button(key="rollouts-preview").click().run()
    assert has_text(form, "reward 0")
    assert has_text(form, "1 rows, first rows.jsonl, line 4")
    assert form.code[0].value == "user: 1 + 1?\n\nassistant: so 0"
    assert run_folders(recorded_runs) == before
    form.button(key="rollouts-open").click().run()
    assert len(run_folders(recorded_runs) - before) == 1


def test_an_upload_opens_as_a_run_with_the_files_name(recorded_runs, open_page):
    before = run_folders(recorded_runs)
    row = {"input": "1 + 1?", "output": "so 2", "gts": "2", "score": 1.0, "step": 1}
    page = open_page("runs")
    page.file_uploader(key="rollouts-files").set_value([("steps.jsonl", json.dumps(row).encode(), "text/plain")]).run()
    page.button(key="rollouts-open").click().run()
    assert not page.exception
    (run_id,) = run_folders(recorded_runs) - before
    assert json.loads((recorded_runs / run_id / "spec.json").read_text())["name"] == "steps"
