"""The gate and downloads of a server; requests without proof are in `tests/security/test_without_proof.py`."""

import csv
import gzip
import html
import http.client
import io
import json
import re
from dataclasses import replace
from math import nan

import httpx2
import pytest

from exgrpo.app.components.widgets import chart
from exgrpo.app.serving import downloads
from exgrpo.app.serving.gate import HEALTH_PATH
from exgrpo.db.rows.trajectories import TrajectoryRow
from tests.app import played, web_server
from tests.jobs.cli.invoked import printed_json

RUN = "play-finished"


@pytest.fixture(scope="module")
def runs_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    played.play(root, played.FINISHED)
    return root


@pytest.fixture(scope="module")
def workbench(runs_root):
    served = web_server.start(runs_root)
    yield served
    served.stop()


@pytest.fixture(scope="module")
def cookie(workbench):
    return workbench.cookie()


def get(workbench, path="/", **headers):
    return httpx2.get(workbench.origin + path, headers=headers, timeout=60)


def websocket_status(workbench, *, origin, cookie=None, host=None):
    """Return the HTTP status that answers a web socket's handshake: 101 when it is accepted."""
    headers = {
        "Host": host or workbench.netloc, "Connection": "Upgrade", "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Protocol": "streamlit", "Origin": origin, "Cookie": cookie,
    }  # fmt: skip
    connection = http.client.HTTPConnection(workbench.netloc)
    connection.putrequest("GET", "/_stcore/stream", skip_host=True)
    for name, value in headers.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders()
    status = connection.getresponse().status
    connection.close()
    return status


def test_token_sets_a_strict_http_only_cookie_and_leads_on_without_the_token(workbench):
    response = get(workbench, f"/run?run=a%22b&token={workbench.token}")
    assert response.status_code == 200
    header = response.headers["set-cookie"]
    assert "HttpOnly" in header
    assert "SameSite=Strict" in header
    assert workbench.token not in header
    assert workbench.token not in response.text
    assert 'content="0;url=./run?run=a%22b"' in response.text


def test_the_field_of_the_locked_page_opens_the_view_that_was_asked_for(workbench):
    locked = get(workbench, "/run?run=a%22b&view=Buffer")
    hidden = re.findall(r'type=hidden name="(.*?)" value="(.*?)"', locked.text)
    assert hidden == [("run", "a&quot;b"), ("view", "Buffer")]
    assert (locked.status_code, "printed" in locked.text) == (403, True)
    assert not {"set-cookie", "server"} & set(locked.headers)
    assert ("name=token" in locked.text, "not the token" in locked.text) == (True, False)
    fields = {name: html.unescape(value) for name, value in hidden}
    for typed in (workbench.token, workbench.link):
        opened = httpx2.get(f"{workbench.origin}/run", params={**fields, "token": typed}, timeout=60)
        assert (opened.status_code, "set-cookie" in opened.headers) == (200, True)
        assert 'content="0;url=./run?run=a%22b&amp;view=Buffer"' in opened.text
    for wrong in ("", "x", f"{workbench.token}x", f"token={workbench.token}x"):
        refused = httpx2.get(f"{workbench.origin}/run", params={**fields, "token": wrong}, timeout=60)
        assert (refused.status_code, "not the token" in refused.text) == (403, True)
        assert workbench.token not in refused.text.replace(wrong or "-", "")


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/run", HEALTH_PATH])
def test_who_holds_the_link_is_not_told_to_use_it_whatever_the_method(workbench, cookie, method, path):
    for proof in ({"headers": {"Cookie": cookie}}, {"params": {"token": workbench.token}}):
        answer = httpx2.request(method, workbench.origin + path, timeout=60, **proof)
        assert (answer.status_code in {200, 204, 405}, "printed" in answer.text) == (True, False), answer.status_code
    without = httpx2.request(method, workbench.origin + "/run", timeout=60)
    assert without.status_code == 403


def test_link_cannot_lead_on_to_another_site(workbench):
    response = httpx2.get(f"{workbench.origin}//foreign.example/?token={workbench.token}", timeout=60)
    assert 'url=./"' in response.text


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8501", "127.0.0.1@evil", ""])
def test_foreign_host_is_refused_even_with_the_cookie(workbench, cookie, host):
    assert get(workbench, Host=host, Cookie=cookie).status_code == 400


def test_two_host_headers_are_refused(workbench, cookie):
    connection = http.client.HTTPConnection(workbench.netloc)
    connection.putrequest("GET", "/", skip_host=True)
    for value in (workbench.netloc, "evil.example"):
        connection.putheader("Host", value)
    connection.putheader("Cookie", cookie)
    connection.endheaders()
    assert connection.getresponse().status == 400
    connection.close()


def test_rebound_name_is_refused_although_origin_and_host_agree(workbench, cookie):
    port = workbench.netloc.rpartition(":")[2]
    name = f"rebound.example:{port}"
    assert get(workbench, Host=name, Origin=f"http://{name}", Cookie=cookie).status_code == 400
    assert websocket_status(workbench, origin=f"http://{name}", host=name, cookie=cookie) == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://evil.example", "http://["]
)
def test_foreign_origin_is_refused(workbench, cookie, origin):
    assert get(workbench, Origin=origin, Cookie=cookie).status_code == 403
    assert httpx2.put(workbench.origin, headers={"Origin": origin, "Cookie": cookie}).status_code == 403
    assert websocket_status(workbench, origin=origin, cookie=cookie) == 403


def test_other_port_of_this_machine_may_not_load_from_here(workbench, cookie):
    foreign = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Cookie": cookie}
    assert get(workbench, **foreign).status_code == 403


def test_web_socket_needs_cookie_and_origin(workbench, cookie):
    assert websocket_status(workbench, origin=workbench.origin, cookie=cookie) == 101
    assert websocket_status(workbench, origin=workbench.origin) == 403
    assert websocket_status(workbench, origin=None, cookie=cookie) == 403


def test_localhost_is_as_good_as_the_address(workbench, cookie):
    name = f"localhost:{workbench.netloc.rpartition(':')[2]}"
    assert get(workbench, Host=name, Origin=f"http://{name}", Cookie=cookie).status_code == 200


def test_a_proxy_may_name_the_default_port_and_no_other(workbench, cookie):
    for host, origin, status in (
        ("localhost:443", "https://localhost", 101),
        ("localhost:80", "http://localhost", 101),
        ("localhost:80", "https://localhost", 403),
        ("localhost:8443", "https://localhost", 403),
        ("localhost", "https://localhost:8443", 403),
    ):
        assert websocket_status(workbench, origin=origin, host=host, cookie=cookie) == status


def test_an_unknown_page_is_said_to_be_none_to_a_browser_that_may_look(workbench, cookie):
    for path in ("/workbench/", "/lab/run", "/nothing", "/download/nothing"):
        response = get(workbench, path, Cookie=cookie, Accept="text/html,*/*")
        assert (response.status_code, "set-cookie" in response.headers) == (404, False)
        assert get(workbench, path, Accept="text/html").status_code == 403
    assert get(workbench, "/run/", Cookie=cookie, Accept="text/html").status_code == 301
    assert get(workbench, HEALTH_PATH, Cookie=cookie, Accept="text/html").status_code == 200


def test_the_charts_script_is_small_compressed_and_for_those_alone_who_hold_the_link(workbench, cookie):
    path = f"/{chart.address()}"
    packed = get(workbench, path, Cookie=cookie)
    assert packed.content == gzip.decompress(chart.script())
    for answer in (packed, get(workbench, "/", Cookie=cookie)):
        assert answer.headers["content-encoding"] == "gzip"
    assert len(packed.content) <= 1_200_000
    assert int(packed.headers["content-length"]) <= 400_000
    assert get(workbench, path).status_code == 403


@pytest.mark.parametrize("is_signed_in", [True, False])
def test_every_answer_carries_the_security_headers(workbench, cookie, is_signed_in):
    response = get(workbench, **({"Cookie": cookie} if is_signed_in else {}))
    assert (response.status_code == 200) is is_signed_in
    headers = response.headers
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in policy["script-src"].replace("'wasm-unsafe-eval'", "")
    assert all("http:" not in sources and "*" not in sources for sources in policy.values())


def test_a_file_has_all_trajectories_that_match_in_order_with_whole_texts(workbench, runs_root):
    query = f"?run_id={RUN}&is_correct=True&sort=-replays"
    answer = get(workbench, f"/download/trajectories.csv{query}", Cookie=workbench.cookie())
    assert answer.headers["content-disposition"] == 'attachment; filename="trajectories.csv"'
    listed = [*csv.DictReader(io.StringIO(answer.text))]
    answer = get(workbench, f"/download/trajectories.jsonl{query}", Cookie=workbench.cookie())
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [row["trajectory_id"] for row in listed] == [str(row["trajectory_id"]) for row in lines]
    counts = [row["num_replays"] for row in lines]
    assert counts == sorted(counts, reverse=True)
    rows = printed_json(runs_root, "query", "trajectories", RUN, "--correct", "--whole", "--limit", "10000")
    assert len(rows) > 150  # more than a batch
    assert {row["trajectory_id"]: row["text"] for row in lines} == {row["trajectory_id"]: row["text"] for row in rows}
    assert get(workbench, f"/download/trajectories.csv{query}").status_code == 403


def test_what_else_was_recorded_is_in_columns_of_the_csv():
    row = TrajectoryRow(**dict.fromkeys(TrajectoryRow.__dataclass_fields__))
    batches = [
        [replace(row, extra=extra) for extra in batch]
        for batch in (({"a": 1}, {"b": "x"}), (None, {"a": nan, "c": nan}))
    ]
    written = csv.DictReader(io.StringIO("".join(downloads._csv(iter(batches)))))
    assert [(line["extra.a"], line["extra.b"], line["extra"]) for line in written] == [
        ("1", "", ""), ("", "x", ""), ("", "", ""), ("", "", '{"c":null}'),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "named"), [("trajectories.csv", "run_id"), (f"trajectories.csv?run_id={RUN}&step_from=some", "step_from")]
)
def test_what_is_wrong_is_a_sentence_that_names_it(workbench, cookie, path, named):
    response = get(workbench, f"/download/{path}", Cookie=cookie)
    assert response.status_code == 400
    assert named in response.text
