"""Access control of the workbench: who may send requests, and what a browser may load from it.

A browser that launches processes is a remote shell, so every request passes four checks before Streamlit sees it:
the Host must be an allowed name (a rebound foreign name is refused even when Origin agrees with it), an Origin must
be this very server, other sites may not embed or fetch, and the caller must hold the token of the printed link or,
where people sign in, have a role.
"""

import hashlib
import hmac
import html
import re
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import parse_qsl, unquote_to_bytes, urlencode, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from exgrpo.app.page_list import FORMER_PATHS, PATHS
from exgrpo.app.serving import downloads
from exgrpo.app.serving.sign_in import PATHS as SIGN_IN_PATHS
from exgrpo.app.serving.sign_in import SIGN_OUT_PATH, SignIn
from exgrpo.app.settings import LOOPBACK_NAMES, TOKEN_PARAMETER

HEALTH_PATH = "/_stcore/health"

_HOST_PATTERN = re.compile(r"(?P<name>[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::(?P<port>\d{1,5}))?")
_POLICY_VIOLATION = 1008
_TOKEN_START = f"{TOKEN_PARAMETER}=".encode()
_DEFAULT_PORTS = {"http": 80, "https": 443}
"""Browsers leave them out, some proxies name them."""
_KNOWN_PATHS = frozenset({*PATHS, *FORMER_PATHS, *downloads.PATHS, *SIGN_IN_PATHS, HEALTH_PATH})

_FIXED_HEADERS = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}


@dataclass(frozen=True)
class GateSettings:
    """What the gate compares requests with. `allowed_hosts` are names without a port, in lower case."""

    token: str
    port: int
    allowed_hosts: frozenset[str] = LOOPBACK_NAMES
    inline_script_hashes: tuple[str, ...] = field(default=())
    """CSP hashes of the inline scripts in the page shell."""
    sign_in: SignIn | None = None
    """How people sign in; with sign-in the token gives no access."""

    @cached_property
    def cookie_name(self) -> str:
        """Cookies are shared by all ports of a host, so the port is part of the name."""
        return f"exgrpo_gate_{self.port}"

    @cached_property
    def cookie_value(self) -> str:
        """A value that proves knowledge of the token without containing it."""
        return hmac.new(self.token.encode(), b"exgrpo workbench cookie", hashlib.sha256).hexdigest()


class Gate:
    """ASGI middleware that lets a request through only when all four checks hold."""

    def __init__(self, app: ASGIApp, settings: GateSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one connection; forward it, or answer it here."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        host = _allowed_host(headers, self._settings.allowed_hosts)
        if host is None:
            await _respond(send, 400, "text/plain", _UNKNOWN_HOST)
            return
        send = self._with_security_headers(send, host)
        if not _is_same_origin(headers, host) or _is_foreign_fetch(headers):
            await _respond(send, 403, "text/plain", "Requests from other sites are refused.\n")
        elif self._settings.sign_in is None and self._has_query_token(scope):
            await self._admit(scope, send)
        elif scope["path"] == HEALTH_PATH or self._is_admitted(headers) or self._is_sign_in(scope):
            await self._forward(scope, receive, send)
        else:
            await _respond(send, 403, "text/html", self._locked_page(headers, scope))

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward an admitted request; Streamlit would answer unknown pages with one that stays white."""
        headers, path = Headers(scope=scope), scope["path"]
        is_unknown = (path.rstrip("/") or "/") not in _KNOWN_PATHS and not path.startswith("/media/")
        if is_unknown and "text/html" in headers.get("accept", ""):
            await _respond(send, 404, "text/html", _PAGE.format(text=_NO_SUCH_PAGE))
            return
        if self._settings.sign_in is not None and path == SIGN_OUT_PATH:
            await run_in_threadpool(self._settings.sign_in.end, _cookies(headers))
        await self._app(scope, receive, send)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        host = _allowed_host(headers, self._settings.allowed_hosts)
        is_same_origin = host is not None and "origin" in headers and _is_same_origin(headers, host)
        if is_same_origin and self._is_admitted(headers):
            await self._app(scope, receive, send)
            return
        await receive()
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": "refused"})

    def _is_admitted(self, headers: Headers) -> bool:
        sign_in = self._settings.sign_in
        if sign_in is not None:
            return sign_in.admits(_cookies(headers))
        given = _cookies(headers).get(self._settings.cookie_name, "")
        return hmac.compare_digest(given.encode(), self._settings.cookie_value.encode())

    def _is_sign_in(self, scope: Scope) -> bool:
        return self._settings.sign_in is not None and scope["method"] == "GET" and scope["path"] in SIGN_IN_PATHS

    def _locked_page(self, headers: Headers, scope: Scope) -> str:
        """Return the page that asks for a sign-in, or for the token, which opens the view that was asked for."""
        if (sign_in := self._settings.sign_in) is not None:
            return _PAGE.format(text=sign_in.page(_cookies(headers)))
        view = "".join(
            f'<input type=hidden name="{html.escape(name)}" value="{html.escape(value)}">'
            for name, value in _parameters(scope)
        )
        return _PAGE.format(text=f"{_USE_THE_LINK}{_WRONG_TOKEN if _given_tokens(scope) else ''}<form>{view}{_FIELD}")

    async def _admit(self, scope: Scope, send: Send) -> None:
        """Set the cookie and forward to the same page without the token in its address.

        A page forwards the browser, not a redirect: a strict cookie is not sent along a redirect that began on another
        site, such as a link in a web terminal.
        """
        target = html.escape(_address_without_token(scope), quote=True)
        cookie = f"{self._settings.cookie_name}={self._settings.cookie_value}; Path=/; HttpOnly; SameSite=Strict"
        if scope.get("scheme") == "https":
            cookie += "; Secure"
        await _respond(send, 200, "text/html", _WELCOME_PAGE.format(target=target), [("set-cookie", cookie)])

    def _has_query_token(self, scope: Scope) -> bool:
        """Whether the address has the token, or the whole link with it, as people paste it into the field."""
        quoted, token = b"".join(_given_tokens(scope)[-1:]), self._settings.token.encode()
        given = {unquote_to_bytes(quoted), unquote_to_bytes(quoted.replace(b"+", b" ")).strip()}
        pasted = {unquote_to_bytes(text.rpartition(_TOKEN_START)[2]) for text in given}
        return any(hmac.compare_digest(text, token) for text in given | pasted)

    def _with_security_headers(self, send: Send, host: str) -> Send:
        policy = content_security_policy(host, self._settings.inline_script_hashes)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _FIXED_HEADERS.items():
                    headers[name] = value
                headers["Content-Security-Policy"] = policy
            await send(message)

        return send_with_headers


def content_security_policy(host: str, inline_script_hashes: Iterable[str]) -> str:
    """Return a policy that allows nothing from anywhere but `host`.

    Streamlit styles its elements inline, and starts each component by a module that it makes itself, a blob.
    """
    scripts = " ".join(f"'{value}'" for value in inline_script_hashes)
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src 'self' blob: 'wasm-unsafe-eval' {scripts}".strip(),
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "media-src 'self' blob:",
            "worker-src 'self' blob:",
            "manifest-src 'self'",
            f"connect-src 'self' ws://{host} wss://{host}",
            "frame-src 'none'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'self'",
            "object-src 'none'",
        ]
    )


def script_hash(script: str) -> str:
    """Return the CSP source that admits exactly this inline script."""
    return "sha256-" + b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _allowed_host(headers: Headers, allowed_hosts: frozenset[str]) -> str | None:
    """Return the Host with its port if its name is allowed. The port may differ (a tunnel), the name may not."""
    values = headers.getlist("host")
    match = _HOST_PATTERN.fullmatch(values[0].lower()) if len(values) == 1 else None
    if match is None or match["name"].strip("[]") not in allowed_hosts:
        return None
    return match[0]


def _is_same_origin(headers: Headers, host: str) -> bool:
    """Whether there is no Origin, or one that is this server as the browser reached it."""
    origins = headers.getlist("origin")
    if not origins:
        return True
    try:
        parts = urlsplit(origins[0])
    except ValueError:
        return False
    port = _DEFAULT_PORTS.get(parts.scheme)
    return len(origins) == 1 and port is not None and parts.netloc.lower() == host.removesuffix(f":{port}")


def _cookies(headers: Headers) -> dict[str, str]:
    parts = (part.partition("=") for line in headers.getlist("cookie") for part in line.split(";"))
    return {name.strip(): value.strip().strip('"') for name, sign, value in parts if sign}


def _is_foreign_fetch(headers: Headers) -> bool:
    """Whether another site, or another port of this host, loads something from here without a link."""
    is_foreign = headers.get("sec-fetch-site", "none") in {"cross-site", "same-site"}
    return is_foreign and headers.get("sec-fetch-mode") != "navigate"


def _address_without_token(scope: Scope) -> str:
    """Return the address relative to itself: a proxy may have taken a path away."""
    raw_path = scope.get("raw_path") or scope["path"].encode()
    path = "./" + raw_path.decode("latin-1").rpartition("/")[2]
    pairs = _parameters(scope)
    return f"{path}?{urlencode(pairs)}" if pairs else path


def _given_tokens(scope: Scope) -> list[bytes]:
    """Return the tokens of the address, still quoted."""
    parts = scope["query_string"].split(b"&")
    return [part.removeprefix(_TOKEN_START) for part in parts if part.startswith(_TOKEN_START)]


def _parameters(scope: Scope) -> list[tuple[str, str]]:
    """Return the parameters of the address but the token."""
    return [pair for pair in parse_qsl(scope["query_string"].decode("latin-1")) if pair[0] != TOKEN_PARAMETER]


async def _respond(
    send: Send, status: int, media_type: str, body: str, headers: Iterable[tuple[str, str]] = ()
) -> None:
    content = body.encode()
    pairs = [
        ("content-type", f"{media_type}; charset=utf-8"),
        ("content-length", str(len(content))),
        ("cache-control", "no-store"),
        *headers,
    ]
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": content})


_UNKNOWN_HOST = "This workbench does not answer under that host name; exgrpo up --allow-host NAME allows it.\n"
_STYLE = (
    "<style>:root{color-scheme:light dark}body{font:16px/1.6 system-ui,sans-serif;display:grid;min-height:90vh;"
    "place-items:center;margin:0}main{max-width:34rem;padding:2rem}h1{font-size:1.4rem}code{font-size:.9em}"
    "a{display:inline-block;padding:.4rem 1rem;border-radius:.5rem;background:#1d5bc0;color:#fff;text-decoration:none}"
    "</style>"
)
_PAGE = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>ExGRPO Workbench</title>"
    "<meta name=viewport content='width=device-width'>"
    + _STYLE.replace("{", "{{").replace("}", "}}")
    + "<main>{text}</main></html>"
)
_USE_THE_LINK = (
    "<h1>This workbench is locked</h1><p>Use the link that <code>exgrpo up</code> printed in your terminal. "
    "It carries a token; after you use it, this browser stays signed in as long as the workbench has this token. "
    "Without the link, ask the person who runs the workbench for the token.</p>"
)
_WRONG_TOKEN = "<p role=alert>This is not the token.</p>"
_FIELD = (
    f"<label>Token <input name={TOKEN_PARAMETER} type=password autocomplete=off required autofocus></label> "
    "<button>Open</button></form>"
)
_NO_SUCH_PAGE = (
    "<h1>No such page</h1><p>The workbench has no page at this address. A proxy that serves it below a path has to "
    "take that path away: docs/deployment.md, Another proxy.</p>"
)
_WELCOME_PAGE = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>ExGRPO Workbench</title>"
    '<meta http-equiv="refresh" content="0;url={target}">'
    '<p><a href="{target}">Open the workbench</a></p></html>'
)
