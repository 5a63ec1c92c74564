import os
import socket
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from exgrpo.jobs.cli.main import app
from exgrpo.jobs.execution.alerts.destinations import FILE_VARIABLE, URLS_VARIABLE, AlertError, read_destinations
from tests.jobs.execution.alerts.conftest import SECRET

pytestmark = pytest.mark.slow


def invoke(**variables: str):
    return CliRunner().invoke(app, ["doctor", "--test-alerts"], env={URLS_VARIABLE: "", FILE_VARIABLE: ""} | variables)


def test_the_variable_is_taken_out_so_that_no_child_inherits_it():
    environment = {URLS_VARIABLE: f"json://localhost/{SECRET}  xmls://localhost/{SECRET}", "PATH": "x"}
    assert [destination.name for destination in read_destinations(environment)] == ["1 (json)", "2 (xmls)"]
    assert environment == {"PATH": "x"}
    assert read_destinations(environment) == []


@pytest.mark.parametrize(("mode", "number"), [(0o600, 2), (0o640, None), (0o604, None), (0o620, None)])
def test_a_file_has_a_url_a_line_and_is_refused_where_others_may_read_or_write_it(tmp_path, mode, number):
    path = tmp_path / "alerts"
    path.write_text(f"# the team\njson://localhost/{SECRET}\n\n  json://localhost/b\n")
    path.chmod(mode)
    if number is not None:
        assert len(read_destinations({FILE_VARIABLE: str(path)})) == number
        return
    with pytest.raises(AlertError, match=str(path)) as caught:
        read_destinations({FILE_VARIABLE: str(path)})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"nonsense://{SECRET}", SECRET, "json://169.254.169.254/latest", "gotify://[fe80::1]/token",
        "ntfys://2852039166/topic",
    ],
)  # fmt: skip
def test_an_unknown_url_and_a_metadata_service_are_refused_by_their_number_alone(url):
    with pytest.raises(AlertError, match="alert URL 2 of 2: ") as caught:
        read_destinations({URLS_VARIABLE: f"json://localhost {url}"})
    assert SECRET not in str(caught.value)


def test_no_name_server_hears_of_what_may_be_a_token(monkeypatch):
    flags = []

    def look_up(*_, **options):
        flags.append(options["flags"])
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    read_destinations({URLS_VARIABLE: f"ntfy://{SECRET}/topic"})
    assert flags == [socket.AI_NUMERICHOST]


def test_no_kind_follows_a_redirect():
    kinds = "json://localhost/a gotify://localhost/token ntfy://localhost/topic"
    destinations = read_destinations({URLS_VARIABLE: kinds})
    assert [plugin.redirects for destination in destinations for plugin in destination.service] == [False] * 3


def test_the_command_says_which_destination_took_the_message(receiver):
    assert invoke(**{URLS_VARIABLE: receiver.url}).output == "1 (json): sent\n"
    assert receiver.titles == ["ExGRPO Workbench: a test"]
    receiver.refuses = True
    assert invoke().exit_code == 1
    result = invoke(**{URLS_VARIABLE: receiver.url})
    assert result.exit_code == 1
    assert "1 (json): not accepted" in result.output
    assert SECRET not in result.output


def test_the_command_line_loads_apprise_only_to_send():
    modules = "exgrpo.jobs.cli.main, exgrpo.jobs.execution.supervisor.__main__, exgrpo.jobs.cli.doctor"
    code = f"import sys; import {modules}; print('apprise' in sys.modules)"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=True)
    assert finished.stdout == "False\n"
