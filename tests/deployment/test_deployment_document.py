import re

from tests.deployment.image_files import REPOSITORY
from tests.house.test_documents import exgrpo_commands, make_targets, words_after

DOCUMENT = "docs/deployment.md"


def test_make_targets_and_commands_named_in_the_document_exist():
    assert {"install", "lock", "audit", "licences"} <= words_after("make", DOCUMENT) <= make_targets()
    named = words_after("exgrpo", DOCUMENT)
    assert {"backup", "doctor"} <= named
    assert named - exgrpo_commands().keys() == set()


def test_files_named_in_the_document_exist():
    text = (REPOSITORY / DOCUMENT).read_text(encoding="utf-8")
    named = re.findall(r"`((?:deploy|locks|tests|docs)/[\w./-]+)`", text)
    assert named
    assert [name for name in named if not (REPOSITORY / name).exists()] == []


def test_services_and_volumes_of_the_document_are_those_of_compose():
    text = (REPOSITORY / DOCUMENT).read_text(encoding="utf-8")
    compose = (REPOSITORY / "compose.yaml").read_text(encoding="utf-8")
    for name in re.findall(r"^\| `(\w+)` ", text, re.MULTILINE):
        assert f"\n  {name}:\n" in compose
    for volume in ("proxy-data", "proxy-config", "state", "database"):
        assert f"`{volume}`" in text
        assert f"\n  {volume}: {{}}" in compose
