import csv
from importlib.metadata import metadata

from deploy.licences import direct_dependencies, licence_of, normal
from tests.deployment.image_files import REPOSITORY

TRAIN = ("train", "postgresql")


def rows(extras):
    with (REPOSITORY / "docs" / "licences.csv").open(encoding="utf-8") as stream:
        return {normal(row["package"]): row for row in csv.DictReader(stream) if row["extras"] == extras}


def test_the_list_names_what_is_installed_of_every_direct_dependency():
    listed = rows("oidc")
    assert {name for name, row in listed.items() if row["direct"]} == direct_dependencies("oidc", *TRAIN)
    for name in direct_dependencies("oidc", *TRAIN):
        package = metadata(name)
        expected = (package["Version"].partition("+")[0], licence_of(package))
        assert (listed[name]["version"], listed[name]["licence"]) == expected, "run `make licences`"


def test_the_verl_engine_s_direct_dependencies_are_listed():
    assert {name for name, row in rows("verl").items() if row["direct"]} == direct_dependencies("verl", *TRAIN)


def test_every_package_names_a_licence():
    listed = {**rows("oidc"), **rows("verl")}
    assert len(listed) > 100
    assert [name for name, row in listed.items() if row["licence"] == "not named"] == []
