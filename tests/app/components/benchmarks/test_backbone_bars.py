import pytest

from exgrpo.app.components.benchmarks.backbone_bars import BACKBONES, figure
from exgrpo.app.components.benchmarks.score_table import Score, ScoreLine

pytestmark = pytest.mark.slow


def test_own_models_stand_at_the_backbone_they_were_trained_from():
    lines = [
        ScoreLine("a", "meta-llama/Llama-3.1-8B", "ExGRPO: mine", {"OOD Avg.": Score(12.5)}),
        ScoreLine("b", "another/model", "ExGRPO: other", {"OOD Avg.": Score(50.0)}),
        ScoreLine("c", "Other models", "Qwen/Qwen2.5-7B-Instruct", {"OOD Avg.": Score(54.0)}),
        ScoreLine("d", "meta-llama/Llama-3.1-8B", "not scored", {}),
        *(ScoreLine("e", name, "mine", {"OOD Avg.": Score(9.0)}) for name in BACKBONES["Qwen2.5-Math 7B"][2]),
    ]
    diamonds = figure("OOD Avg.", lines).data[-1]
    assert list(diamonds.x) == ["Llama3.1-8B", "Qwen2.5-7B Instruct", *["Qwen2.5-Math 7B"] * 2]
    assert list(diamonds.y) == [12.5, 54.0, 9.0, 9.0]
