"""Signing in with a real provider and a real browser; roles hold in commands, whatever a page offers."""

import inspect
import json
import re
import secrets
from dataclasses import replace

import httpx2
import pytest

from app import requests, settings
from app.serving.sign_in import SignInError, read_sign_in
from app.settings import LINK_HOLDER, Person, Role, Roles
from jobs.execution.supervisor.open_index import ingest_all
from jobs.runs.directory import RunDirectory
from jobs.runs.journal import Journal, JournalKind
from jobs.specs.train import TrainSpec
from tests.app import web_server
from tests.security.oidc_provider import CLIENT_ID, CLIENT_SECRET, OidcProvider
from tests.tools import free_port

pytestmark = pytest.mark.slow

pytest.importorskip("authlib", reason="needs Authlib: the extra oidc")

ROLES = {"admin": ["ana@example.org"], "operator": ["@lab.example"], "viewer": ["vic@example.org", "@example.org"]}
VIEWER, OPERATOR, ADMIN = "vic@example.org", "olga@lab.example", "ana@example.org"
RUN = "run-1"


def write(path, port, issuer="http://127.0.0.1:1", roles=ROLES, **changes):
    auth = {
        "redirect_uri": f"http://localhost:{port}/oauth2callback",
        "cookie_secret": secrets.token_hex(24),
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "server_metadata_url": f"{issuer}/.well-known/openid-configuration",
    } | changes
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


FOR_OPERATORS = {
    "submit", "stop", "resume", "branch", "tag", "note", "chat", "evaluate", "start_study_run", "submit_judge",
    "mark_case", "mark_trajectory", "set_verdict", "save_draft", "delete_draft", "preview_data", "start_probe", "check",
    "rename", "save_view", "delete_view", "stop_study", "launch_script", "dry_run_text", "first_look",
    "import_rollouts", "keep_sweep", "preview_rollouts", "look_at_benchmark", "keep_benchmark_file",
}  # fmt: skip
FOR_ADMINS = {"archive", "delete", "restore", "empty_bin", "save_cluster", "delete_cluster", "ask_cluster"}
READS = {
    "answer_damage", "benchmarks_folder", "branch_spec", "clone", "failure",
    "describe_missing_package", "describe_stop", "evaluation_answers", "evaluation_questions", "examine_machine",
    "find_cluster_fault",
    "find_view_fault", "job_progress", "journal_entries", "list_clusters", "list_deleted", "list_drafts",
    "list_skipped", "list_views", "load_draft", "missing_vllm", "score_curves", "score_curves_by_difficulty",
    "status_by_files", "token_data", "user_benchmarks",
}  # fmt: skip


INNER = {
    "acting_as", "current_person", "format_file", "import_in_process", "load_own_format", "read_outcome",
    "skipped_rows",
    "token_texts", "wraps",
}  # fmt: skip
"""What the module imports for itself."""


def sign_in_as(monkeypatch, person):
    monkeypatch.setattr(requests, "current_person", lambda: person)


def contents_of(root):
    return sorted((path, path.read_bytes()) for path in root.rglob("*") if path.is_file())


def test_every_request_of_pages_is_checked_or_reads_only():
    functions = {name for name, value in vars(requests).items() if inspect.isroutine(value) and name[0] != "_"}
    assert functions - INNER == FOR_OPERATORS | FOR_ADMINS | READS


@pytest.mark.parametrize("name", sorted(FOR_OPERATORS | FOR_ADMINS))
def test_a_viewer_and_nobody_are_refused_by_every_request_that_changes_something(root, monkeypatch, name):
    settings.configure(settings.AppSettings(root))
    before = contents_of(root)
    for person in (None, Person(VIEWER, Role.VIEWER), *([Person("o", Role.OPERATOR)] if name in FOR_ADMINS else [])):
        sign_in_as(monkeypatch, person)
        with pytest.raises(requests.RefusedError):
            getattr(requests, name)()
    assert contents_of(root) == before


def test_the_journal_says_who_asked(root, monkeypatch):
    settings.configure(settings.AppSettings(root))
    for person in (Person(OPERATOR, Role.OPERATOR), LINK_HOLDER):
        sign_in_as(monkeypatch, person)
        requests.note(RUN, "x")
    assert [entry.by for entry in Journal(root).entries()][1:] == [OPERATOR, "link user"]
    assert Journal(root).entries()[0].by.endswith("on this machine")


def test_without_sign_in_the_links_holder_may_do_everything_and_with_it_nobody_known_nothing(root):
    settings.configure(settings.AppSettings(root))
    assert settings.current_person() == LINK_HOLDER
    settings.configure(settings.AppSettings(root, roles=Roles({"*": Role.ADMIN})))
    try:
        assert settings.current_person() is None
        with pytest.raises(requests.RefusedError):
            requests.note(RUN, "x")
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
