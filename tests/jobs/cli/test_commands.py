"""The table of commands: what it says of each is what the command says of itself."""

import subprocess
import sys

import pytest
import typer

from jobs.cli.main import COMMANDS, app


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_of_a_command_what_its_docstring_says(name):
    command = typer.main.get_command(app).get_command(None, name)
    assert command.name == name
    assert command.get_short_help_str(limit=1000) == COMMANDS[name][1]
    assert all(part.get_short_help_str() for part in getattr(command, "commands", {}).values())


def test_listing_the_commands_imports_none():
    code = (
        "import sys; from typer.testing import CliRunner; from jobs.cli.main import app; "
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0; "
        "print(sorted(name for name in sys.modules if name.startswith(('jobs.', 'db.'))))"
    )
    finished = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert (
        finished.stdout.strip()
        == "['db.rows', 'db.rows.display_names', 'jobs.cli', 'jobs.cli.main', 'jobs.cli.options']"
    )
