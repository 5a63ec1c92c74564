from xml.etree import ElementTree

import pytest

from exgrpo.app.components.paper.entries import ENTRIES
from exgrpo.app.components.paper.printed_figures import picture
from exgrpo.app.theme import DARK

pytestmark = pytest.mark.slow


def test_every_entry_but_texts_has_a_picture_without_any_run():
    drawn = {entry.key: picture(entry, {}, DARK) for entry in ENTRIES}
    assert {key for key, svg in drawn.items() if not svg} == {"settings", "code-rules", "cases"}
    for key, svg in drawn.items():
        assert not svg or len(ElementTree.fromstring(svg)) > 1, key
