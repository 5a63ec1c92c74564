import xml.etree.ElementTree as ElementTree

import pytest

from bench import document

RESULT = {
    "bench": "x",
    "figures": {
        "num": 3,
        "step_ms": 9.0,
        "growth/step ms/2": 4.0,
        "growth/step ms/1": 2.0,
        "load_average": 1.0,
        "commit": "HEAD",
    },
    "targets": {"step_ms": "<= 8"},
    "met": False,
}


def test_a_table_shows_targets_first_and_what_was_missed():
    rows = document.table(RESULT, ["num"]).splitlines()
    assert rows[4:] == ["| `step_ms` | 9 **missed** | <=8 |", "| `num` | 3 |  |"]
    assert document.table(RESULT).splitlines()[4:] == rows[4:5]


@pytest.mark.parametrize(("load", "expected"), [(9.0, "The machine was busy"), (2.5, "| Figure"), (None, "Load not")])
def test_figures_say_whether_the_machine_was_busy_where_that_is_known(load, expected):
    figures = {**RESULT["figures"], "load_average": load}
    assert document.table({**RESULT, "figures": figures}).split("\n\n", 1)[1].startswith(expected)


def test_a_table_says_at_which_commit_it_was_measured_and_whether_that_is_old():
    (first,) = document.subprocess.run(
        ["git", "rev-list", "--max-parents=0", "HEAD"], cwd=document.ROOT, capture_output=True, text=True, check=True
    ).stdout.split()[:1]
    figures = RESULT["figures"]
    assert "changed since" in document.table({**RESULT, "figures": {**figures, "commit": first}})
    assert "changed since" not in document.table(RESULT)
    assert document.table({**RESULT, "figures": {**figures, "commit": None}}).startswith("Commit not")


def test_growth_is_read_in_order_of_work_and_drawn_to_scale():
    curves = document.growth(RESULT["figures"])
    assert curves == {"step ms": [(1.0, 2.0), (2.0, 4.0)]}
    picture = ElementTree.fromstring(document.draw(curves))
    circles = [item for item in picture.iter() if item.tag.endswith("circle")]
    assert len(circles) == 2
    assert float(circles[0].get("cy")) > float(circles[1].get("cy"))


def test_the_document_is_filled_from_the_results(tmp_path, monkeypatch):
    monkeypatch.setattr(document, "RESULTS", tmp_path)
    monkeypatch.setattr(document, "IMAGES", tmp_path)
    monkeypatch.setattr(document, "DOCUMENT", tmp_path / "performance.md")
    (tmp_path / "performance.md").write_text("a\n<!-- figures x also num -->\nold\n<!-- end -->\nb\n", encoding="utf-8")
    (tmp_path / "x.json").write_text(document.json.dumps(RESULT), encoding="utf-8")
    for _ in range(2):
        document.main()
    text = (tmp_path / "performance.md").read_text(encoding="utf-8")
    assert text.startswith("a\n<!-- figures x also num -->\nMeasured at `HEAD`.\n\n| Figure")
    assert text.endswith("\n![How cost grows with work](images/growth-x.svg)\n<!-- end -->\nb\n")
    assert "old" not in text
    assert "| `num` | 3 |" in text
    assert (tmp_path / "growth-x.svg").is_file()
