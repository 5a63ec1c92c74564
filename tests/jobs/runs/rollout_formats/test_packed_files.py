import gzip
import json
import shutil

import pyarrow as pa
import pytest

from exgrpo.jobs.runs.rollout_formats import source as source_module
from exgrpo.jobs.runs.rollout_formats.formats import UnknownRolloutsError, find_format
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource, SourceChangedError
from tests.jobs.runs.rollout_formats.test_real_samples import SAMPLES


def packed_by_zstd(content):
    return pa.compress(content, "zstd", asbytes=True)


PACKERS = {".gz": gzip.compress, ".zst": packed_by_zstd}
TEXTS = ["traces/prime_rl", "traces/verifiers", "verifiers_results", "lm_eval"]


def lines(numbers):
    return b"".join(b'{"input": "%d + 1?", "output": "%d", "step": %d}\n' % (n, n + 1, n) for n in numbers)


def steps_of(source):
    return [step.step for step in find_format(source.path).read(source)]


@pytest.mark.parametrize("ending", PACKERS)
@pytest.mark.parametrize("name", TEXTS)
def test_packed_samples_have_what_the_plain_ones_have(tmp_path, name, ending):
    shutil.copytree(SAMPLES / name, tmp_path / "packed")
    for file in (tmp_path / "packed").rglob("*.jsonl"):
        file.with_name(file.name + ending).write_bytes(PACKERS[ending](file.read_bytes()))
        file.unlink()
    found = []
    for path in (SAMPLES / name, tmp_path / "packed"):
        source = RolloutSource(path)
        found.append((find_format(path).title, list(find_format(path).read(source)), source.bad.num))
    assert found[0] == found[1]
    assert found[0][1]


@pytest.mark.parametrize("ending", PACKERS)
def test_the_step_and_the_metrics_are_those_of_the_unpacked_name(tmp_path, ending):
    (tmp_path / f"12.jsonl{ending}").write_bytes(PACKERS[ending](b'{"input": "2?", "output": "2", "score": 1.0}\n'))
    assert steps_of(RolloutSource(tmp_path)) == [12]
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / f"chart.csv{ending}").write_bytes(PACKERS[ending](b"Step,loss\n3,0.5\n4,0.25\n"))
    read = find_format(tmp_path / "m").read(RolloutSource(tmp_path / "m"))
    assert [(step.step, step.metrics) for step in read] == [(3, {"loss": 0.5}), (4, {"loss": 0.25})]


@pytest.mark.parametrize("ending", PACKERS)
def test_a_packed_file_that_grows_by_another_part_is_read_on(tmp_path, ending):
    file = tmp_path / f"a.jsonl{ending}"
    file.write_bytes(PACKERS[ending](lines([1, 2])))
    source = RolloutSource(file)
    assert steps_of(source) == [1, 2]
    with file.open("ab") as opened:
        opened.write(PACKERS[ending](lines([3])))
    assert steps_of(source) == [3]
    file.write_bytes(PACKERS[ending](lines([4, 5, 6, 7])))
    with pytest.raises(SourceChangedError):
        steps_of(source)


def test_a_file_that_is_packed_when_it_is_full_is_not_read_twice(tmp_path):
    plain = tmp_path / "00000.jsonl"
    plain.write_bytes(lines([1, 2]))
    source = RolloutSource(tmp_path)
    assert steps_of(source) == [1, 2]
    (tmp_path / "00000.jsonl.zst").write_bytes(packed_by_zstd(lines([1, 2])))
    assert (steps_of(source), steps_of(RolloutSource(tmp_path))) == ([], [1, 2])
    plain.unlink()
    (tmp_path / "00001.jsonl").write_bytes(lines([3]))
    assert (steps_of(source), steps_of(RolloutSource(tmp_path))) == ([3], [1, 2, 3])
    assert source.bad.num == 0


@pytest.mark.parametrize("ending", PACKERS)
def test_a_file_that_is_cut_off_is_read_up_to_there(tmp_path, ending):
    noise = [json.dumps({"input": f"{n}?", "output": "x", "step": n, "note": f"{n * 7919**9}"}) for n in range(40_000)]
    content = PACKERS[ending]("".join(f"{line}\n" for line in noise).encode())
    (tmp_path / f"a.jsonl{ending}").write_bytes(content[: len(content) // 2])
    source = RolloutSource(tmp_path)
    found = steps_of(source)
    assert found == list(range(len(found)))
    assert 10_000 < len(found) < 30_000
    assert [sentence.startswith(f"a.jsonl{ending}, line {len(found) + 1}: ") for sentence in source.bad.sentences] == [
        True
    ]
    assert "read up to here" in source.bad.sentences[0]
    (tmp_path / f"a.jsonl{ending}").write_bytes(content)
    assert steps_of(source) == list(range(len(found), 40_000))


@pytest.mark.parametrize("ending", PACKERS)
def test_a_small_damaged_file_is_named_and_the_others_are_read(tmp_path, ending):
    (tmp_path / f"a.jsonl{ending}").write_bytes(PACKERS[ending](lines([1]))[:-3])
    with pytest.raises(UnknownRolloutsError, match="cannot be read"):
        find_format(tmp_path / f"a.jsonl{ending}")
    (tmp_path / "b.jsonl").write_bytes(lines([2]))
    source = RolloutSource(tmp_path)
    assert (steps_of(source), source.bad.num) == ([2], 1)


def test_a_packed_file_is_not_read_beyond_its_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(source_module, "_MAX_GROWN_BYTES", 100_000)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines([1]) + b" \n" * 1_000_000))
    source = RolloutSource(tmp_path)
    assert (steps_of(source), source.bad.num) == ([1], 1)
    assert "times the size of its file" in source.bad.sentences[0]


def test_each_folder_is_read_once_whatever_leads_to_it(tmp_path):
    runs, other = tmp_path / "runs", tmp_path / "other"
    for folder, number in ((runs / "one", 1), (other, 2), (other / "inner", 3)):
        folder.mkdir(parents=True)
        (folder / "a.jsonl").write_bytes(lines([number]))
    for name, target in (
        ("latest", runs / "one"), ("here", runs), ("up", tmp_path), ("b", other), ("c", other), ("z", other / "inner")
    ):  # fmt: skip
        (runs / name).symlink_to(target)
    (other / "back").symlink_to(runs)
    (other / "inner" / "loop").symlink_to(other)
    assert sorted(steps_of(RolloutSource(runs))) == [1, 2, 3]
    (tmp_path / "link").symlink_to(runs)
    assert sorted(steps_of(RolloutSource(tmp_path / "link"))) == [1, 2, 3]
