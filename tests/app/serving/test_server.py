import json
import signal
import socket

import pytest
from streamlit import config

from exgrpo.app import theme
from exgrpo.app.serving import server, streamlit_changes
from tests.app import web_server

pytestmark = pytest.mark.slow


def test_address_beyond_this_machine_needs_the_explicit_flag():
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        with pytest.raises(server.ServerError):
            server.check_host(host, allows_remote=False)
    server.check_host("0.0.0.0", allows_remote=True)
    for host in ("127.0.0.1", "127.0.0.2", "::1", "localhost"):
        server.check_host(host, allows_remote=False)


def test_what_cannot_be_served_is_one_sentence(tmp_path, capsys, monkeypatch):
    assert server.main(["--runs-root", str(tmp_path / "none")]) == 2
    assert "expected a folder" in capsys.readouterr().err
    for name in ("lab.example:8443", "https://lab.example", "lab.example/path"):
        assert server.main(["--runs-root", str(tmp_path), "--port", "0", "--allow-host", name]) == 2
        assert f"--allow-host {name}: expected" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert server.main(["--runs-root", str(tmp_path), "--port", str(port)]) == 2
    assert f"port {port} on 127.0.0.1: cannot be opened" in capsys.readouterr().err
    monkeypatch.setenv("EXGRPO_TOKEN", "short")
    assert server.main(["--runs-root", str(tmp_path), "--port", "0"]) == 2
    assert "at least 16 characters" in capsys.readouterr().err


def test_a_start_says_nothing_but_the_link_with_the_given_token_and_sigterm_ends_it(tmp_path, capfd):
    served = web_server.start(tmp_path, token="a-token-of-my-own-choice")
    assert served.link.startswith("http://127.0.0.1:")
    assert served.link.endswith("/?token=a-token-of-my-own-choice")
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(15) in {0, -signal.SIGTERM}
    assert not capfd.readouterr().err


def test_statistics_magic_and_tracebacks_are_off():
    options = theme.streamlit_options("127.0.0.1", 1)
    assert options["browser.gatherUsageStats"] is False
    assert options["runner.magicEnabled"] is False
    assert options["client.showErrorDetails"] == "none"
    assert options["server.enableAgentApi"] is False
    assert options["logger.enableRich"] is False


def test_files_and_variables_of_other_applications_change_no_option_of_streamlit(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "get_config_files", config.get_config_files)
    monkeypatch.setattr(config, "_config_options", None)
    ours = theme.streamlit_options("127.0.0.1", 1) | {"secrets.files": []}

    def values():
        streamlit_changes.load_options(ours)
        options = config.get_config_options().items()
        return {name: option.value for name, option in options if name != "server.cookieSecret"}

    before = values()
    others = {name: not value if isinstance(value, bool) else "other" for name, value in before.items()}
    lines = [f"{name} = {json.dumps(value)}" for name, value in others.items()]
    for folder in (tmp_path, tmp_path / "home"):
        (folder / ".streamlit").mkdir(parents=True)
        (folder / ".streamlit" / "config.toml").write_text("\n".join([*lines, 'server.cookieSecret = "other"']))
        (folder / ".streamlit" / "secrets.toml").write_text("is not TOML")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for option in config.get_config_options().values():
        monkeypatch.setenv(option.env_var, "other")
    assert values() == before
    assert len(before) > 300
    assert config.get_option("server.cookieSecret") != "other"
    assert config.get_option("secrets.files") == []
