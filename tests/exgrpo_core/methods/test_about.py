from importlib import import_module

import pytest

from exgrpo_core.methods.about import About
from exgrpo_core.methods.loading import CORRECTION, QUESTIONS, find_part, methods
from tests.exgrpo_core.strategies.replay_methods import METHODS


def test_all_methods_that_are_tested_are_listed_and_exgrpo_comes_first():
    names = list(methods())
    assert names[0] == "gaussian"
    chosen = {METHODS[name].get(key) for name in METHODS for key in (QUESTIONS, CORRECTION)}
    of_exgrpo = {None, "exgrpo_released", "clip", "policy_divergence", "jensen_shannon"}
    of_tokens = {"masked", "truncated", "supervised", "gspo"}
    assert set(names) - {"gaussian"} == chosen - of_exgrpo - of_tokens


@pytest.mark.parametrize("name", list(methods()))
def test_a_method_names_the_paper_of_its_file_and_what_it_changes_in_three_words_each(name):
    about = methods()[name]
    part = find_part(next(key for key in (QUESTIONS, CORRECTION) if about.settings.get(key) == name), name)
    text = import_module(part.__module__).__doc__
    assert about.paper.split("'")[0] in text
    for words in (about.questions, about.trajectories, about.correction):
        assert 1 <= len(words.split()) <= 3


def test_papers_are_read_at_arxiv_or_in_the_acl_anthology():
    def address(paper):
        return About("A", paper, "a", "a", "a").address

    assert address("2510.02245") == "https://arxiv.org/abs/2510.02245"
    assert address("2026.acl-long.1682") == "https://aclanthology.org/2026.acl-long.1682/"
    assert address("TRL's code") is None


def test_names_in_studies_are_all_different():
    cells = [about.cell for about in methods().values()]
    assert len({*cells}) == len(cells)
