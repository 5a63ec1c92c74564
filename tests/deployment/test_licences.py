import re
from importlib.metadata import metadata

from deploy.licences import direct_dependencies, licence_of, normal
from tests.deployment.image_files import REPOSITORY

ROW = re.compile(r"\| (?P<name>[\w.-]+) \| (?P<version>[^ ]+) \| (?P<licence>[^|]+) \| (?P<direct>yes|) ?\|")


def rows(section: str) -> dict[str, re.Match]:
    text = (REPOSITORY / "docs" / "licences.md").read_text(encoding="utf-8")
    part = text.partition(f"## {section}\n")[2].partition("\n## ")[0]
    return {normal(match["name"]): match for match in ROW.finditer(part)}


def test_the_list_names_what_is_installed_of_every_direct_dependency():
    listed = rows("The workbench")
    assert {name for name, row in listed.items() if row["direct"]} == direct_dependencies("oidc")
    for name in direct_dependencies("oidc"):
        package = metadata(name)
        expected = (package["Version"].partition("+")[0], licence_of(package))
        assert (listed[name]["version"], listed[name]["licence"]) == expected, "run `make licences`"


def test_the_verl_engine_s_direct_dependencies_are_listed():
    assert {name for name, row in rows("The verl engine's environment").items() if row["direct"]} == (
        direct_dependencies("verl")
    )


def test_every_package_names_a_licence():
    listed = {**rows("The workbench"), **rows("The verl engine's environment")}
    assert len(listed) > 100
    assert [name for name, row in listed.items() if row["licence"] == "not named"] == []
