import re
import subprocess

import pytest

pytestmark = pytest.mark.slow

RULE = (
    "options: ; @echo '"
    "$(foreach program,$(BENCHMARKS),$(program) $(or $(SHORT_$(program)),--short) $(LONG_$(program));)'"
)


def test_make_bench_gives_no_program_an_option_that_it_does_not_know(repository):
    command = ["make", "--eval", RULE, "options"]
    printed = subprocess.run(command, cwd=repository, check=True, capture_output=True, text=True).stdout
    options = dict(line.split(maxsplit=1) for line in printed.split(";") if line.strip())
    assert "--short" in options["replay_buffer"]
    unknown = [
        (program, option)
        for program, words in options.items()
        for option in re.findall(r"--[\w-]+", words)
        if f'"{option}"' not in (repository / "bench" / f"{program}.py").read_text(encoding="utf-8")
    ]
    assert not unknown, "Makefile: name the program's options in SHORT_..., or the program in NOT_IN_BENCH."
