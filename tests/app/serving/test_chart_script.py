"""The changes to Streamlit's script of charts: a new version of Streamlit may need other ones."""

import re

from app.serving import chart_script
from tests.house.tracked import read, source_files

ALWAYS_THERE = {"scatter"}


def _kinds_of_pages() -> set[str]:
    texts = [read(path) for path in source_files() if path.parts[0] == "app"]
    return {kind.lower() for text in texts for kind in re.findall(r"\bgo\.(\w+)", text)} - {"figure"}


def test_script_starts_the_kinds_of_charts_that_pages_have_and_no_others():
    assert _kinds_of_pages() - ALWAYS_THERE == chart_script.KINDS
    text = chart_script.script().decode()
    kinds = dict(re.findall(r'([\w$]+)=_\(\{"lib/(\w+)\.js"', text))
    (registered,) = re.findall(r"register\(\[([^]]*)\]\)", text)
    assert {kinds[call.removesuffix("()")] for call in registered.split(",")} == chart_script.KINDS


def test_script_leaves_out_a_chart_whose_width_is_not_known():
    before, after = chart_script.path().read_text(), chart_script.script().decode()
    assert len(re.findall(r"\{width:(\w)\}=\w\(\w\);return \1\?", before)) == 1
    assert len(re.findall(r"\{width:(\w)\}=\w\(\w\);return \1>0\?", after)) == 1
