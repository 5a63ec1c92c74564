"""The workbench as compose starts it, spoken to as the proxy speaks, and through a real proxy with TLS."""

import os
import shutil
import ssl
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx2
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.deployment.composed import composed_workbench
from tests.deployment.image_files import HOST_NAME, REPOSITORY, TOKEN, health_check
from tests.tools import free_port

pytestmark = pytest.mark.slow

PROXY_HEADERS = {"Host": HOST_NAME, "X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.7"}
ORIGIN = f"https://{HOST_NAME}"
STREAM = "/_stcore/stream"


@pytest.fixture(scope="module")
def workbench(tmp_path_factory):
    with composed_workbench(tmp_path_factory.mktemp("runs")) as running:
        yield running


def get(workbench, path="/", **headers):
    """Ask from another address than the server's own, which is trusted by itself, as a proxy in a container does."""
    with httpx2.Client(transport=httpx2.HTTPTransport(local_address="127.0.0.2"), timeout=60) as client:
        return client.get(f"http://127.0.0.1:{workbench.port}{path}", headers=PROXY_HEADERS | headers)


@pytest.fixture(scope="module")
def cookie(workbench):
    return get(workbench, f"/?token={TOKEN}").headers["set-cookie"].partition(";")[0]


def websocket_status(workbench, origin, **headers):
    given = {"X-Forwarded-Proto": "https", **headers}
    try:
        with connect(
            f"ws://{HOST_NAME}{STREAM}", address=("127.0.0.1", workbench.port), proxy=None,
            origin=origin, subprotocols=["streamlit"], additional_headers=given,
        ):  # fmt: skip
            return 101
    except InvalidStatus as error:
        return error.response.status_code


def test_the_cookie_is_for_https_alone_when_the_browser_s_side_is_https(workbench):
    assert "; Secure" in get(workbench, f"/?token={TOKEN}").headers["set-cookie"]
    plain = get(workbench, f"/?token={TOKEN}", **{"X-Forwarded-Proto": "http"})
    assert "Secure" not in plain.headers["set-cookie"]


def test_pages_open_under_the_proxy_s_name_with_the_cookie_and_may_connect_to_its_web_socket(workbench, cookie):
    assert get(workbench).status_code == 403
    assert get(workbench, Host="evil.example", Cookie=cookie).status_code == 400
    response = get(workbench, Cookie=cookie, Origin=ORIGIN)
    assert response.status_code == 200
    assert f"wss://{HOST_NAME}" in response.headers["content-security-policy"]


def test_the_web_socket_opens_for_the_https_origin_alone(workbench, cookie):
    assert websocket_status(workbench, ORIGIN, Cookie=cookie) == 101
    assert websocket_status(workbench, "https://evil.example", Cookie=cookie) == 403
    assert websocket_status(workbench, ORIGIN) == 403


def test_the_image_s_health_check_holds_while_the_pages_answer_and_fails_without_them(workbench):
    _, option, program = health_check("workbench")
    for port, is_healthy in ((workbench.port, True), (free_port(), False)):
        asked = program.replace("8501", str(port))
        assert asked != program
        finished = subprocess.run([sys.executable, option, asked], capture_output=True, check=False)
        assert (finished.returncode == 0) is is_healthy


@contextmanager
def running_caddy(folder, workbench_port):
    """Run the repository's Caddyfile on free ports with a certificate of its own; yield its port and that authority."""
    caddy = shutil.which("caddy")
    if caddy is None:
        pytest.skip("Caddy is not installed; Debian's package `caddy` brings it.")
    port = free_port()
    rules = (REPOSITORY / "deploy" / "Caddyfile").read_text(encoding="utf-8")
    options = f"{{\n\tadmin off\n\tskip_install_trust\n\thttp_port {free_port()}\n\thttps_port {port}\n}}\n"
    (folder / "Caddyfile").write_text(options + rules, encoding="utf-8")
    environment = os.environ | {
        "WORKBENCH_NAME": HOST_NAME, "WORKBENCH_ADDRESS": f"127.0.0.1:{workbench_port}",
        "XDG_DATA_HOME": str(folder / "data"), "XDG_CONFIG_HOME": str(folder / "config"), "HOME": str(folder),
    }  # fmt: skip
    command = [caddy, "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]
    authority = folder / "data" / "caddy" / "pki" / "authorities" / "local" / "root.crt"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        give_up_at = time.monotonic() + 30
        while not (authority.is_file() and "serving" in (folder / "log").read_text()):
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < give_up_at, (folder / "log").read_text()
            time.sleep(0.1)
        yield port, authority
    finally:
        process.terminate()
        process.wait(30)


def test_through_caddy_the_workbench_opens_over_tls_with_its_web_socket(workbench, tmp_path):
    with running_caddy(tmp_path, workbench.port) as (port, authority):
        trust = ssl.create_default_context(cafile=str(authority))
        with httpx2.Client(
            verify=trust, headers={"Host": f"{HOST_NAME}:{port}"}, trust_env=False, timeout=60
        ) as client:
            asked = {"sni_hostname": HOST_NAME}
            welcome = _get_patiently(client, f"https://127.0.0.1:{port}/?token={TOKEN}", asked)
            assert "; Secure" in welcome.headers["set-cookie"]
            assert "max-age" in welcome.headers["strict-transport-security"]
            cookie = welcome.headers["set-cookie"].partition(";")[0]
            page = client.get(f"https://127.0.0.1:{port}/", headers={"Cookie": cookie}, extensions=asked)
            assert "<title>ExGRPO Workbench</title>" in page.text
        with connect(
            f"wss://{HOST_NAME}:{port}{STREAM}", address=("127.0.0.1", port), ssl=trust, proxy=None,
            origin=f"https://{HOST_NAME}:{port}", subprotocols=["streamlit"], additional_headers={"Cookie": cookie},
        ) as stream:  # fmt: skip
            assert stream.response.status_code == 101


def _get_patiently(client, address, extensions):
    """The certificate may be made a moment after the port is open."""
    give_up_at = time.monotonic() + 30
    while True:
        try:
            return client.get(address, extensions=extensions)
        except httpx2.ConnectError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.2)
