import pytest

from jobs.machine import processor

LARGE = 134_515_008


@pytest.fixture
def with_flags(tmp_path, monkeypatch):
    """Return a function that makes the processor one with these flags."""

    def fake(flags: str) -> None:
        file = tmp_path / "cpuinfo"
        file.write_text(f"processor\t: 0\nmodel name\t: a processor\nflags\t\t: fpu avx2 {flags}\n\nprocessor\t: 1\n")
        monkeypatch.setattr(processor, "CPU_INFO", file)

    return fake


@pytest.mark.parametrize(
    ("flags", "expected"), [("", False), ("avx512f", False), ("avx512f avx512_bf16", True), ("amx_bf16 amx_tile", True)]
)
def test_a_large_model_is_computed_in_bfloat16_where_the_processor_has_units_for_it(flags, expected, with_flags):
    with_flags(flags)
    assert processor.uses_bfloat16(LARGE) == expected


def test_a_small_model_stays_in_float32(with_flags):
    with_flags("avx512_bf16")
    assert not processor.uses_bfloat16(100_000)


def test_a_machine_that_names_no_flags_computes_in_float32(tmp_path, monkeypatch):
    monkeypatch.setattr(processor, "CPU_INFO", tmp_path / "none")
    assert not processor.uses_bfloat16(LARGE)
