"""The table of what happened to a trajectory."""

from types import SimpleNamespace

import pytest

from exgrpo.app.components.trajectories import lineage_view
from exgrpo.db.rows.trajectories import LineageRow

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ["inserted", "moved"])
def test_both_vertical_axes_of_the_chart_have_a_title(kind):
    row = SimpleNamespace(step=26, mean_entropy=0.1)
    layout = lineage_view.chart(row, [LineageRow(26, kind, bucket_to=3)]).layout
    assert (layout.yaxis.title.text, layout.yaxis2.title.text) == ("entropy", "bucket")


def test_after_an_eviction_the_question_is_where_its_last_change_says():
    row = SimpleNamespace(step=2, mean_entropy=0.1, mean_log_prob=-0.2, reward=1.0, advantage=0.5, extra=None)
    events = [LineageRow(2, "inserted", bucket_to=3), LineageRow(5, "evicted", 3, 3), LineageRow(7, "emptied", 3)]
    assert lineage_view._summary(row, events[:2]).endswith("its question now in bucket 3.")
    assert lineage_view._summary(row, events).endswith("its question left the buffer (limit) in step 7.")
    assert list(lineage_view.table(row, events)["Bucket"])[1:] == ["3", "3", "3 → outside"]
    assert list(lineage_view.table(row, events)["Event"])[2:] == [
        "left the buffer (limit)",
        "question left the buffer (limit)",
    ]
    assert lineage_view.chart(row, events).data[0].y == (3, 3, 3, None, None)


def test_equal_events_of_a_step_are_one_row_with_their_count():
    row = SimpleNamespace(step=26, mean_entropy=0.1, mean_log_prob=-0.2, reward=1.0, advantage=0.5)
    again = LineageRow(26, "duplicate", bucket_to=3)
    events = [LineageRow(26, "inserted", bucket_to=3), again, again, LineageRow(28, "duplicate", bucket_to=4)]
    table = lineage_view.table(row, events)
    assert [*zip(table["Step"], table["Event"], table["Bucket"], strict=True)][1:] == [
        (26, "stored in the buffer", "3"),
        (26, "same response again, not stored (2 times)", "3"),
        (28, "same response again, not stored", "4"),
    ]
