"""Signing in with a real provider and a real browser; roles hold in commands, whatever a page offers."""

import ast
import importlib
import inspect
import json
import re
import secrets
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from exgrpo.app import settings
from exgrpo.app.serving.sign_in import SignInError, read_sign_in
from exgrpo.app.settings import LINK_HOLDER, Roles
from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.execution.supervisor.indexing import ingest_all
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.journal import Journal, JournalKind
from exgrpo.jobs.runs.people import ROLES, Person, RefusedError, Role, acting_as, identify_by
from exgrpo.jobs.specs.train import TrainSpec
from tests.app import web_server
from tests.security.oidc_provider import CLIENT_ID, CLIENT_SECRET, OidcProvider
from tests.tools import free_port

pytestmark = pytest.mark.slow

pytest.importorskip("authlib", reason="needs Authlib: the extra oidc")

RULES = {"admin": ["ana@example.org"], "operator": ["@lab.example"], "viewer": ["vic@example.org", "@example.org"]}
VIEWER, OPERATOR, ADMIN = "vic@example.org", "olga@lab.example", "ana@example.org"
RUN = "run-1"


def write(path, port, issuer="http://127.0.0.1:1", roles=RULES, **changes):
    auth = {
        "redirect_uri": f"http://localhost:{port}/oauth2callback", "cookie_secret": secrets.token_hex(24),
        "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET,
        "server_metadata_url": f"{issuer}/.well-known/openid-configuration",
    } | changes  # fmt: skip
    lines = ["[auth]", *(f"{name} = {json.dumps(value)}" for name, value in auth.items() if value is not None)]
    lines += ["[roles]", *(f"{name} = {json.dumps(value)}" for name, value in roles.items())]
    path.touch(mode=0o600)
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "runs"
    root.mkdir()
    RunDirectory.create(root, TrainSpec(), run_id=RUN).request_attempt(1)
    Journal(root).append(JournalKind.SUBMITTED, RUN, attempt=1)
    return root


def named_by_pages():
    """Yield what the files of `app` import of the actions, and the attributes of it that they use."""
    for path in sorted(Path(settings.__file__).parent.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        names = {}
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.module.startswith("exgrpo.jobs.actions"):
                package = importlib.import_module(node.module)
                for alias in node.names:
                    if not hasattr(package, alias.name):
                        importlib.import_module(f"{node.module}.{alias.name}")
                    names[alias.asname or alias.name] = getattr(package, alias.name)
        yield from names.values()
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
                yield getattr(names[node.value.id], node.attr, None)


def is_on_a_root(function):
    is_ours = inspect.isfunction(function) or inspect.ismethod(function)
    return is_ours and "runs_root" in inspect.signature(function).parameters


ACTIONS = {getattr(named, "__func__", named) for named in named_by_pages() if is_on_a_root(named)}
"""All that pages call with a runs root."""


def name_of(action):
    return f"{action.__module__}.{action.__qualname__}"


def contents_of(root):
    return sorted((path, path.read_bytes()) for path in root.rglob("*") if path.is_file())


def test_every_action_of_pages_says_which_role_it_needs():
    assert run_actions.stop in ACTIONS
    assert not {name_of(action) for action in ACTIONS - ROLES.keys()}


@pytest.mark.parametrize("action", sorted(ROLES, key=name_of), ids=name_of)
def test_an_action_is_refused_to_nobody_and_to_everybody_below_its_role(root, action):
    before = contents_of(root)
    for person in (None, *(Person(VIEWER, role) for role in Role if role < ROLES[action])):
        identify_by(lambda person=person: person)
        with pytest.raises(RefusedError):
            action()
    assert contents_of(root) == before


def test_the_journal_says_who_asked(root):
    for person in (Person(OPERATOR, Role.OPERATOR), LINK_HOLDER):
        with acting_as(person):
            run_actions.note(root, RUN, "x")
    assert [entry.by for entry in Journal(root).entries()][1:] == [OPERATOR, "link user"]
    assert Journal(root).entries()[0].by.endswith("on this machine")


def test_without_sign_in_the_links_holder_may_do_everything_and_with_it_nobody_known_nothing(root):
    settings.configure(settings.AppSettings(root))
    assert settings.current_person() == LINK_HOLDER
    settings.configure(settings.AppSettings(root, roles=Roles({"*": Role.ADMIN})))
    try:
        assert settings.current_person() is None
        with pytest.raises(RefusedError):
            run_actions.note(root, RUN, "x")
    finally:
        settings.configure(settings.AppSettings(root))


@pytest.mark.parametrize(
    ("claims", "role"),
    [
        ({"email": ADMIN}, Role.ADMIN), ({"email": "ANA@EXAMPLE.ORG"}, Role.ADMIN),
        ({"email": OPERATOR, "email_verified": True}, Role.OPERATOR), ({"email": "other@example.org"}, Role.VIEWER),
        ({"email": ADMIN, "email_verified": "true"}, Role.ADMIN), ({"email": ADMIN, "email_verified": False}, None),
        ({"email": ADMIN, "email_verified": "false"}, None), ({"email": ADMIN, "email_verified": None}, None),
        ({"email": ADMIN, "is_logged_in": False}, None), ({"email": ADMIN, "is_logged_in": "true"}, None),
        ({"email": "ana@example.org.evil.example"}, None), ({"email": "x@evil.example@lab.example.evil"}, None),
        ({"email": "@sub.lab.example"}, None), ({"email": [ADMIN]}, None), ({}, None),
        ({"name": ADMIN, "sub": ADMIN, "preferred_username": ADMIN}, None),
    ],
)  # fmt: skip
def test_a_role_follows_from_the_verified_address_alone(tmp_path, claims, role):
    roles = read_sign_in(write(tmp_path / "sign-in.toml", 1), tmp_path / "ended").roles
    person = roles.person_of({"is_logged_in": True} | claims)
    assert (None if person is None else person.role) == role


@pytest.mark.parametrize(
    ("mode", "changes"),
    [
        (0o600, {"cookie_secret": "short"}), (0o600, {"client_secret": None}),
        (0o600, {"redirect_uri": "http://localhost/elsewhere"}), (0o600, {"redirect_uri": "localhost/oauth2callback"}),
        (0o600, {"roles": {}}), (0o600, {"roles": {"owner": ["a@b"]}}), (0o600, {"roles": {"admin": "a@b"}}),
        (0o640, {}),
    ],
)  # fmt: skip
def test_a_wrong_sign_in_file_and_one_that_others_may_read_are_refused(tmp_path, mode, changes):
    path = write(tmp_path / "sign-in.toml", 1, **changes)
    path.chmod(mode)
    with pytest.raises(SignInError):
        read_sign_in(path, tmp_path / "ended")


def test_ended_sign_ins_that_cannot_be_read_are_a_refusal(tmp_path):
    path = write(tmp_path / "sign-in.toml", 1)
    (tmp_path / "ended").mkdir()
    with pytest.raises(SignInError):
        read_sign_in(path, tmp_path / "ended")


@pytest.fixture(scope="module")
def provider():
    started = OidcProvider()
    yield started
    started.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory, provider):
    folder = tmp_path_factory.mktemp("sign-in")
    root = folder / "runs"
    root.mkdir()
    RunDirectory.create(root, TrainSpec(), run_id=RUN).request_attempt(1)
    Journal(root).append(JournalKind.SUBMITTED, RUN, attempt=1)
    port = free_port()
    path = write(folder / "sign-in.toml", port, provider.issuer)
    ingest_all(root, None)
    started = web_server.start(root, "--port", str(port), "--sign-in", str(path), token="a-token-that-must-not-help")
    yield started, root, f"http://localhost:{port}"
    started.stop()


def test_where_people_sign_in_no_token_opens_anything_and_nothing_else_answers(served):
    started, _, origin = served
    assert "token" not in started.link
    for path in ("/", "/run?run=run-1", "/static/js/index.js", "/_stcore/host-config", "/_stcore/upload_file/x/y"):
        joined = "&" if "?" in path else "?"
        for address in (path, f"{path}{joined}token=a-token-that-must-not-help"):
            assert httpx2.get(origin + address, timeout=60).status_code == 403
    assert httpx2.post(f"{origin}/auth/login", timeout=60).status_code == 403
    forged = {"_streamlit_user": json.dumps({"email": ADMIN, "is_logged_in": True, "origin": origin})}
    assert httpx2.get(origin, cookies=forged, timeout=60).status_code == 403


@pytest.mark.parametrize(("audience", "status"), [(CLIENT_ID, 200), ("another-client", 403)])
def test_a_token_for_another_client_signs_nobody_in(provider, served, audience, status):
    provider.claims = {"sub": ADMIN, "email": ADMIN, "aud": audience}
    with httpx2.Client(base_url=served[2], follow_redirects=True, timeout=60) as client:
        client.get(re.search(r'href="(/auth/login[^"]*)', client.get("/").text)[1])
        assert client.get("/").status_code == status


def open_signed_in(browser, provider, served, email, **claims):
    _, _, origin = served
    provider.claims = {"sub": email, "email": email, **claims}
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(origin)
    page.get_by_role("link", name="Sign in").click()
    page.wait_for_url(f"{origin}/**")
    return page


@pytest.mark.browser
@pytest.mark.slow
def test_an_operator_signs_in_and_their_note_carries_their_name(browser, provider, served):
    _, root, origin = served
    page = open_signed_in(browser, provider, served, OPERATOR)
    page.get_by_text(f"{OPERATOR}, operator").wait_for()
    assert set(provider.redirects) == {f"{origin}/oauth2callback"}
    page.goto(f"{origin}/run?run={RUN}")
    page.get_by_test_id("stMainBlockContainer").get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Stopping").first.wait_for()
    asked = [entry for entry in Journal(root).entries() if entry.kind is JournalKind.STOP_ASKED]
    assert [entry.by for entry in asked] == [OPERATOR]
    cookies = {cookie["name"]: cookie["value"] for cookie in page.context.cookies(origin)}
    assert httpx2.get(origin, cookies=cookies, timeout=60).status_code == 200
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("link", name="Sign in").wait_for()
    page.context.close()
    respelled = {"_streamlit_user": f"{cookies['_streamlit_user']}=", "_streamlit_user_1": "x"}
    for copied in (cookies, cookies | respelled):
        assert httpx2.get(origin, cookies=copied, timeout=60).status_code == 403
    sign_in = read_sign_in(root.parent / "sign-in.toml", root / "workbench" / "signed-out")
    assert not sign_in.admits(cookies)
    assert replace(sign_in, _ended=set(), ended_file=root / "none").admits(cookies)


@pytest.mark.browser
@pytest.mark.slow
def test_a_viewer_sees_and_is_refused_by_the_command_behind_a_button(browser, provider, served):
    _, root, origin = served
    page = open_signed_in(browser, provider, served, VIEWER)
    page.get_by_text(f"{VIEWER}, viewer").wait_for()
    before = Journal(root).entries(), contents_of(root / RUN)
    page.goto(f"{origin}/run?run={RUN}")
    stop = page.get_by_test_id("stMainBlockContainer").get_by_role("button", name="Stop")
    stop.wait_for()
    refusal = page.get_by_text("needs the role operator")
    assert refusal.count() == 0
    stop.click()
    refusal.first.wait_for()
    assert (Journal(root).entries(), contents_of(root / RUN)) == before
    page.context.close()


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize(("email", "claims"), [("eve@evil.example", {}), (ADMIN, {"email_verified": False})])
def test_somebody_without_a_role_sees_nothing_of_the_workbench(browser, provider, served, email, claims):
    page = open_signed_in(browser, provider, served, email, **claims)
    page.get_by_text("No role for you here").wait_for()
    assert RUN not in page.content()
    page.context.close()
