from urllib.parse import parse_qs

import pytest
import yaml

from exgrpo.jobs.actions.replay.side_by_side import PRESET_OF_METHODS
from exgrpo.jobs.specs.train import load_preset
from exgrpo_core.methods.loading import methods
from tests.app.page_texts import texts

pytestmark = pytest.mark.slow


def links(page):
    return [link.proto for link in page.get("page_link") if link.proto.label == "Run it"]


def test_every_method_has_a_card_with_its_paper_and_what_it_changes_and_the_paper_s_is_first(open_page):
    page = open_page("methods", view="Replay methods")
    heads = [text for text in texts(page) if text.startswith("**") and ":gray[" in text]
    assert [head.split("**")[1] for head in heads] == [about.title for about in methods().values()]
    assert heads[0] == "**ExGRPO** :gray[[2510.02245](https://arxiv.org/abs/2510.02245)]"
    assert "**TRL replay** :gray[TRL's code]" in heads
    assert ":gray[Questions] high reward variance  \n:gray[Trajectories] none  \n:gray[Correction] none" in texts(page)
    assert len(links(page)) == len(methods())


@pytest.mark.parametrize("name", ["gaussian", "dapo", "repo", "m2po", "vcrl", "dyjr"])
def test_run_it_opens_the_form_with_the_method_chosen(open_page, name):
    link = links(open_page("methods", view="Replay methods"))[list(methods()).index(name)]
    query = parse_qs(link.query_string)
    form = open_page("new_run", section="YAML", preset=query["preset"][0], set=query["set"])
    content = yaml.safe_load(form.text_area(key="new-run-yaml").value)
    preset = load_preset(PRESET_OF_METHODS).model_dump(mode="json")["algorithm"]
    assert content["algorithm"] == preset | methods()[name].settings
    assert content["name"] == f"chains {methods()[name].title}"
    assert not list(form.error)
