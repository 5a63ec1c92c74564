"""The workbench through a real nginx, by the recipe of docs/deployment.md and by wrong ones, and on a slow line."""

import os
import re
import socket
import subprocess
import time
from contextlib import contextmanager

import pytest

from tests.app import recorded, web_server
from tests.browser.clicks import enter
from tests.house.tracked import read
from tests.tools import free_port, require_tool

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TOKEN = "a-token-of-my-own-choice"
RUN = "run?run=run-finished"
CURVE = ".js-plotly-plot .scatterlayer path"
BANNER = "#connection-lost"
ABORTED = "net::ERR_ABORTED"
OTHER_SETTINGS = """
server.baseUrlPath = "other"
server.port = 1
server.sslCertFile = "/none"
client.showSidebarNavigation = false
theme.base = "/none.toml"
"""


@pytest.fixture(scope="module")
def runs_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("networks")
    recorded.record(root, recorded.FINISHED)
    return root


@pytest.fixture(scope="module")
def served(runs_root, tmp_path_factory):
    """A server whose user has another application's settings of Streamlit, which have no effect."""
    home = tmp_path_factory.mktemp("home")
    (home / ".streamlit").mkdir()
    (home / ".streamlit" / "config.toml").write_text(OTHER_SETTINGS)
    started = web_server.start(runs_root, token=TOKEN, HOME=str(home), STREAMLIT_SERVER_BASE_URL_PATH="other")
    yield started
    started.stop()


@pytest.fixture
def page(browser):
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.set_default_timeout(90_000)
    yield page
    page.context.close()


@pytest.fixture
def through_nginx(served, tmp_path):
    """Start nginx by the recipe with changes; return the address of its server."""
    started = []

    def start(*changes):
        (rules,) = re.findall(r"```nginx\n(.*?)```", read("docs/deployment.md"), re.DOTALL)
        port = free_port()
        for before, after in (
            ("listen 8443", f"listen 127.0.0.1:{port}"), ("workbench.example.org", "localhost"),
            ("/etc/ssl/workbench", str(tmp_path / "localhost")), ("http://127.0.0.1:8501", served.origin), *changes,
        ):  # fmt: skip
            assert before in rules
            rules = rules.replace(before, after)
        started.append(nginx(tmp_path, rules))
        started[-1].__enter__()
        return f"https://localhost:{port}"

    yield start
    for server in started:
        server.__exit__(None, None, None)


@contextmanager
def nginx(folder, rules):
    program, openssl = require_tool("nginx"), require_tool("openssl")
    words = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    files = ["-keyout", folder / "localhost.key", "-out", folder / "localhost.crt", "-subj", "/CN=localhost"]
    subprocess.run([openssl, *words, *files], check=True, capture_output=True)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{kind}_temp_path {folder / kind};" for kind in kinds)
    # Its workers write to the folder what a browser does not read at once; as root they would be nobody, who may not.
    user = "user root;" if os.geteuid() == 0 else ""
    text = f"{user} daemon off; pid {folder / 'pid'}; events {{}} http {{ access_log off; {places} {rules} }}"
    (folder / "nginx.conf").write_text(text)
    process = subprocess.Popen([program, "-p", folder, "-e", folder / "errors", "-c", folder / "nginx.conf"])
    (port,) = re.findall(r"listen 127\.0\.0\.1:(\d+)", rules)
    try:
        give_up_at = time.monotonic() + 30
        while not is_open(int(port)):
            assert process.poll() is None, (folder / "errors").read_text()
            assert time.monotonic() < give_up_at
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(30)
        assert "[crit]" not in (errors := (folder / "errors").read_text()), errors


def is_open(port):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize("path", ["/", "/lab/workbench/"])
def test_the_recipe_for_nginx_works_at_another_port_and_below_a_path(page, through_nginx, path):
    address = through_nginx(("location / {", f"location {path} {{")) + path
    failed = []
    page.on("requestfailed", lambda request: failed.append((request.url, request.failure)))
    page.on("response", lambda response: response.status < 400 or failed.append((response.url, response.status)))
    enter(page, f"{address}{RUN}&token={TOKEN}")
    page.locator(CURVE).first.wait_for(state="attached")
    assert page.url.startswith(f"{address}{RUN}")
    page.get_by_test_id("stSidebarNav").get_by_role("link", name="Methods").click()
    page.wait_for_url(f"{address}methods")
    page.keyboard.press("Control+k")
    page.get_by_text("Run: exgrpo whole").click()
    page.wait_for_url(f"{address}{RUN}")
    page.get_by_role("heading", name="exgrpo whole").wait_for()
    # A page that is left ends what it was loading.
    assert [(url, why) for url, why in failed if why != ABORTED] == []


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (("Upgrade $http_upgrade", 'Upgrade ""'), "socket"),
        (("Host $http_host", "Host $host"), "host"),
        (("proxy_set_header Host $http_host;", ""), "host"),
    ],
    ids=["no web sockets", "no port", "no host"],
)
def test_a_page_says_what_a_proxy_does_not_forward_once_and_is_not_loaded_again(page, through_nginx, change, kind):
    address = through_nginx(change)
    loads = []
    page.on("framenavigated", lambda frame: loads.append(frame.url))
    page.clock.install()
    enter(page, f"{address}/?token={TOKEN}")
    banner = page.locator(f"{BANNER}[data-kind={kind}]")
    for _ in range(12):
        page.clock.run_for(5_000)
    banner.wait_for()
    assert page.locator(BANNER).count() == 1
    assert loads == [f"{address}/?token={TOKEN}", f"{address}/"]


def test_a_proxy_that_keeps_its_path_gets_a_page_that_says_so(page, through_nginx):
    address = through_nginx(("location / {", "location /lab/ {"), ("/;   # the", ";   # the"))
    page.goto(f"{address}/lab/?token={TOKEN}")
    page.get_by_role("heading", name="No such page").wait_for()
