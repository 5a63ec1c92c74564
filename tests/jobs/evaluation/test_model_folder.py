import os

import pytest

from jobs.evaluation.model_folder import link_model


def test_a_copy_that_was_cut_short_leaves_no_model_and_the_next_one_is_whole(tmp_path, monkeypatch):
    policy, target = tmp_path / "policy", tmp_path / "run" / "model"
    policy.mkdir()
    for name in ("config.json", "model-1.safetensors", "model-2.safetensors"):
        (policy / name).write_text(name)
    with monkeypatch.context() as full_disk:
        full_disk.setattr("jobs.evaluation.model_folder.link_or_copy", refuse_the_last)
        with pytest.raises(OSError, match="No space left"):
            link_model(policy, target)
    assert not target.exists()
    link_model(policy, target)
    assert sorted(path.name for path in target.iterdir()) == sorted(path.name for path in policy.iterdir())
    assert [path.name for path in target.parent.iterdir()] == ["model"]


def refuse_the_last(source: str, target: str) -> str:
    if source.endswith("2.safetensors"):
        raise OSError(28, "No space left on device")
    os.link(source, target)
    return target
