"""A small OpenID provider: discovery, authorize, token and keys over real HTTP, signing in a chosen person."""

import base64
import hashlib
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT_ID, CLIENT_SECRET = "workbench", "client-secret-of-the-test"


class OidcProvider:
    """`claims` are those of the next person who signs in."""

    def __init__(self) -> None:
        self.claims: dict[str, object] = {}
        self.redirects: list[str] = []
        self._key = RSAKey.generate_key(2048, {"kid": "one"})
        self._granted: dict[str, dict[str, str]] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                if parts.path == "/authorize":
                    self._redirect(outer.authorize({name: q[0] for name, q in parse_qs(parts.query).items()}))
                else:
                    self._answer(outer.keys() if parts.path == "/jwks" else outer.discovery())

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                form = {name: value[0] for name, value in form.items()}
                self._answer(outer.token(form, self.headers.get("Authorization", "")))

            def _answer(self, content: dict[str, object]) -> None:
                body = json.dumps(content).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _redirect(self, target: str) -> None:
                self.send_response(302)
                self.send_header("Location", target)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def discovery(self) -> dict[str, object]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "code_challenge_methods_supported": ["S256"],
        }

    def keys(self) -> dict[str, object]:
        return {"keys": [self._key.as_dict(private=False) | {"use": "sig", "alg": "RS256"}]}

    def authorize(self, query: dict[str, str]) -> str:
        assert query["client_id"] == CLIENT_ID
        assert query["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(12)
        self._granted[code] = query
        self.redirects.append(query["redirect_uri"])
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def token(self, form: dict[str, str], authorization: str) -> dict[str, object]:
        query = self._granted.pop(form["code"])
        given = base64.b64decode(authorization.removeprefix("Basic ")).decode() if authorization else ""
        assert given == f"{CLIENT_ID}:{CLIENT_SECRET}"
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
        assert challenge.decode() == query["code_challenge"]
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 600, "nonce": query.get("nonce")}
        id_token = jwt.encode({"alg": "RS256", "kid": "one"}, claims | self.claims, self._key)
        return {
            "access_token": secrets.token_urlsafe(12),
            "token_type": "Bearer",
            "id_token": id_token,
            "expires_in": 600,
        }
