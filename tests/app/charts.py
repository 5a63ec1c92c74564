"""The charts of a page under test."""

import json


def figures(page):
    parts = [element.proto for element in page.get("bidi_component")]
    return [json.loads(part.bytes)["figure"] for part in parts if part.component_name == "chart"]
