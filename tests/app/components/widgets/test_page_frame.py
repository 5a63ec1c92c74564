from urllib.parse import parse_qsl, urlsplit

import pytest

from exgrpo.app import settings
from exgrpo.app.components.widgets import copied_text
from exgrpo.app.settings import Roles
from exgrpo.jobs.runs.people import Role


@pytest.fixture
def copied(monkeypatch):
    """The parameters of the links that pages offer to copy."""
    links = []
    monkeypatch.setattr(copied_text, "show", lambda text, *_: links.append(parse_qsl(urlsplit(text).query)))
    return links


@pytest.mark.parametrize("is_view", [False, True])
def test_a_link_has_the_view_and_the_token_only_if_the_user_asks_for_access(open_page, runs_root, copied, is_view):
    settings.configure(settings.AppSettings(runs_root, is_view=is_view, token="secret-of-the-server"))
    page = open_page("runs", q='a "b"', state="Active")
    assert copied == []
    page.session_state["share"] = True
    page.run()
    assert copied == [[("q", 'a "b"'), ("state", "Active")]]
    page.toggle(key="share-access").set_value(True).run()
    assert copied[1:] == [[("q", 'a "b"'), ("state", "Active"), ("token", "secret-of-the-server")]]


def test_where_people_sign_in_no_link_gives_access(open_page, runs_root, copied, monkeypatch):
    settings.configure(settings.AppSettings(runs_root, roles=Roles({"*": Role.ADMIN})))
    monkeypatch.setattr("exgrpo.app.components.widgets.page_frame.show_person", lambda: None)
    page = open_page("runs", q="x")
    page.session_state["share"] = True
    page.run()
    assert copied == [[("q", "x")]]
    assert not [toggle for toggle in page.toggle if toggle.key == "share-access"]
