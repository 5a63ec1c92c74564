import ast
import subprocess
import sys
from pathlib import Path

import pytest

from exgrpo.jobs import cli
from exgrpo.jobs.cli.main import COMMANDS
from exgrpo.jobs.cli.runs import plain_number

TARGETS = {name: target for commands in COMMANDS.values() for name, target in commands.items()}


def functions_with_options() -> set[str]:
    """Return module:function of each undecorated public function of the command line that takes `--runs-root`."""
    return {
        f"{path.stem}:{node.name}"
        for path in Path(cli.__file__).parent.glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and not node.decorator_list and not node.name.startswith("_")
        if any(getattr(argument.annotation, "id", "") == "RunsRoot" for argument in node.args.args)
    }


def test_every_function_with_the_options_of_a_command_is_in_the_table():
    missing = functions_with_options() - {*TARGETS.values()}
    assert not missing, f"COMMANDS of jobs/cli/main.py: add a line for {', '.join(sorted(missing))}."


def test_listing_the_commands_imports_none():
    code = (
        "import sys; from typer.testing import CliRunner; from exgrpo.jobs.cli.main import app; "
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0; "
        "own = ('exgrpo.jobs.', 'exgrpo.db.', 'torch', 'pydantic'); "
        "print(*sorted(name for name in sys.modules if name.startswith(own)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == [
        "exgrpo.db.rows", "exgrpo.db.rows.display_names", "exgrpo.jobs.cli", "exgrpo.jobs.cli.main",
        "exgrpo.jobs.cli.options",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (12, "12"), (0.123456, "0.1235"), (-1234567.8, "-1234568"), (0.00002, "0.00002"),
        (9999999999999998.0, "9999999999999998"), (1e16, "1e+16"), (123456789012345678.0, "1.2345678901234568e+17"),
        (1e-12, "0.000000000001"), (-9.9e-13, "-9.9e-13"), (float("inf"), "inf"), (float("nan"), "nan"),
    ],
)  # fmt: skip
def test_numbers_have_a_power_of_ten_only_from_1e16_on_and_below_1e_12(value, text):
    assert plain_number(value) == text
