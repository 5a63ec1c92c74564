"""Every role tries every way to an address inside: by commands of pages, replayed over the web socket, and typed."""

import re
import socket
from contextlib import contextmanager

import httpx2
import pytest
from typer.testing import CliRunner

from app import requests, settings
from app.roles import Person, Role
from db.connections.opening import open_database
from jobs.cli.main import app
from jobs.runs.directory import list_run_directories
from jobs.supervisor.instance import SingleInstance
from tests.app import judged, web_server
from tests.app.page_session import open_tab, states
from tests.security.inner_addresses import COMMANDS, PAGE_WAYS, RUN, URL, WAYS, use
from tests.security.oidc_provider import OidcProvider
from tests.security.test_sign_in import ADMIN, OPERATOR, VIEWER, write
from tests.tools import free_port

EMAILS = {Role.VIEWER: VIEWER, Role.OPERATOR: OPERATOR, Role.ADMIN: ADMIN}


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "runs"
    root.mkdir()
    database = open_database(None, root)
    judged.make_run(database, root, RUN, "finished", 2)
    database.close()
    supervisor = SingleInstance(root)  # one that starts nothing
    supervisor.beat()
    yield root
    supervisor.release()


@pytest.fixture(autouse=True)
def connections(monkeypatch):
    """Addresses that something connects to in this process, other than this machine's."""
    tried: list[object] = []
    connect = socket.socket.connect

    def note(self, address):
        if not str(address[0]).startswith(("127.", "/")):
            tried.append(address)
            raise OSError("no connection from here")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", note)
    yield
    assert tried == []


def files_of(root):
    written = (path for path in root.rglob("*") if path.is_file() and "workbench.db" not in path.name)
    return sorted((str(path), path.read_bytes()) for path in written)


def refusal_of(root, go):
    """Return why an address is refused, at once or when what was queued with it is used."""
    before = {run.run_id for run in list_run_directories(root)}
    try:
        go()
        for run in list_run_directories(root):
            if run.run_id not in before and URL in run.spec_path.read_text():
                use(run)
    except (requests.UserError, ValueError) as error:
        return str(error)
    return "no refusal"


@pytest.mark.parametrize("name", WAYS)
def test_a_role_is_refused_or_the_address_is_by_every_command(root, monkeypatch, name, tried):
    settings.configure(settings.AppSettings(root))
    way = WAYS[name]
    for role in (None, *Role):
        monkeypatch.setattr(requests, "current_person", lambda role=role: role and Person("somebody", role))
        if role is None or role < way.role:
            before = files_of(root)
            with pytest.raises(requests.RefusedError, match="needs the role"):
                way.go()
            assert files_of(root) == before
        else:
            assert way.refusal in refusal_of(root, way.go)
    tried("ways to inner addresses by roles", len(Role) + 1)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_line_is_held_by_the_same_rules(root, name):
    refusal, words = COMMANDS[name]

    def type_it():
        result = CliRunner().invoke(app, [*words, "--runs-root", str(root)], input="1 + 1 =")
        if result.exit_code:
            raise requests.CommandError(result.stderr)

    assert refusal in refusal_of(root, type_it)


@pytest.fixture
def served(root):
    provider = OidcProvider()
    port = free_port()
    path = write(root.parent / "sign-in.toml", port, provider.issuer)
    started = web_server.start(root, "--port", str(port), "--sign-in", str(path))
    yield provider, f"http://localhost:{port}"
    started.stop()
    provider.close()


@contextmanager
def signed_in(served, email):
    """Sign in with the provider and open a tab, as a browser does."""
    provider, origin = served
    provider.claims = {"sub": email, "email": email}
    with httpx2.Client(base_url=origin, follow_redirects=True, trust_env=False, timeout=60) as client:
        client.get(re.search(r'href="?(/auth/login[^\s>"]*)', client.get("/").text)[1])
        client.get("/_stcore/health")
        cookies = {cookie.name: cookie.value for cookie in client.cookies.jar}
    header = "; ".join(f"{name}={value}" for name, value in cookies.items())
    with open_tab(origin, header, cookies["_streamlit_xsrf"]) as session:
        yield session


def states_of_admin(served, way):
    """Return what an administrator's page holds when its button is pressed."""
    with signed_in(served, ADMIN) as session:
        session.open(way.page, **way.query)
        if way.choices:
            session.open(way.page, states(session.widgets, way.choices), **way.query)
        return states(session.widgets, {**way.choices, **way.fields}, way.pressed)


@pytest.mark.slow
def test_what_an_administrators_page_sends_is_replayed_by_every_role_in_vain(root, served, tried):
    for way in PAGE_WAYS.values():
        replayed = states_of_admin(served, way)
        for role, email in EMAILS.items():
            before = files_of(root)
            with signed_in(served, email) as session:

                def send(session=session, way=way, replayed=replayed):
                    assert session.open(way.page, replayed, **way.query) == []

                met = refusal_of(root, send)
                said = "\n".join(session.texts)
            if role < way.role:
                assert f"needs the role {way.role.name.lower()}" in said
                assert files_of(root) == before
            else:
                assert way.refusal in met + said
    tried("pages' states replayed by roles", len(PAGE_WAYS) * len(EMAILS))
