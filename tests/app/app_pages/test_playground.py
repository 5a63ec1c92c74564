import pytest

from exgrpo.jobs.actions.playground import process
from exgrpo.jobs.runs.directory import CommandError

pytestmark = pytest.mark.slow

ENTROPIES = {"start": 2.0, "30": 0.5}


def record(target, number):
    entropy = ENTROPIES[target.rpartition("@")[2]]
    return {
        "model": target,
        "sample": number,
        "text": "a<b",
        "is_truncated": number == 2,
        "token_ids": [5, 6],
        "entropies": [entropy, entropy / 2],
        "log_probs": [-1.0, -2.0],
        "texts": ["a<", "b"],
    }


@pytest.fixture
def asked(monkeypatch):
    calls = []

    def answer(_root, targets, prompt, options):
        calls.append((targets, prompt, options))
        yield None
        for target in targets:
            yield {"model": target, "prompt": f"<user>{prompt}", "num_prompt_tokens": 3}
            yield from (record(target, number) for number in (1, 2))

    monkeypatch.setattr(process, "ask_models", answer)
    return calls


@pytest.mark.usefixtures("recorded_shared")
def test_answers_before_and_after_training_stand_side_by_side_on_one_scale(open_page, asked):
    page = open_page("run", run="run-finished", view="Configuration", part="Playground")
    next(area for area in page.text_area if area.label == "Prompt").set_value("6;a+8=")
    next(button for button in page.button if button.label == "Ask").click().run()
    targets, prompt, options = asked[0]
    assert (targets, prompt) == (["run-finished@start", "run-finished@30"], "6;a+8=")
    assert options[:4] == ["-n", "2", "--temperature", "1.0"]
    headings = [element.value for element in page.markdown if element.value in {"**Before training**", "**Step 30**"}]
    assert headings == ["**Before training**", "**Step 30**"]
    captions = [element.value for element in page.caption]
    assert sum("mean entropy 1.500" in caption for caption in captions) == 2
    assert sum("mean entropy 0.375 · cut at the length limit" in caption for caption in captions) == 1
    assert page.code[-1].value == "<user>6;a+8="


@pytest.mark.usefixtures("recorded_shared")
def test_a_refusal_is_shown(open_page, monkeypatch):
    def refuse(*_arguments):
        raise CommandError("Ada is viewer, but this needs the role operator.")

    monkeypatch.setattr(process, "ask_models", refuse)
    page = open_page("run", run="run-finished", view="Configuration", part="Playground")
    next(area for area in page.text_area if area.label == "Prompt").set_value("6;a+8=")
    next(button for button in page.button if button.label == "Ask").click().run()
    assert any("needs the role operator" in element.value for element in page.text)
