"""A small OpenID provider: discovery, authorize, token and keys over real HTTP, signing in a chosen person."""

import base64
import hashlib
import json
import secrets
import time
from contextlib import ExitStack
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.http_server import Answer, answering

CLIENT_ID, CLIENT_SECRET = "workbench", "client-secret-of-the-test"


class OidcProvider:
    """`claims` are those of the next person who signs in."""

    def __init__(self):
        self.claims: dict[str, object] = {}
        self.redirects: list[str] = []
        self._key = RSAKey.generate_key(2048, {"kid": "one"})
        self._granted: dict[str, dict[str, str]] = {}
        self._serving = ExitStack()
        self.issuer = self._serving.enter_context(answering(self._answer))

    def close(self):
        self._serving.close()

    def _answer(self, asked):
        parts = urlsplit(asked.path)
        fields = {name: value[0] for name, value in parse_qs(asked.body.decode() or parts.query).items()}
        if parts.path == "/authorize":
            return Answer("", 302, (("Location", self.authorize(fields)),))
        if parts.path == "/token":
            content = self.token(fields, asked.headers.get("Authorization", ""))
        else:
            content = self.keys() if parts.path == "/jwks" else self.discovery()
        return Answer(json.dumps(content), headers=(("Content-Type", "application/json"),))

    def discovery(self):
        return {
            "issuer": self.issuer, "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token", "jwks_uri": f"{self.issuer}/jwks",
            "response_types_supported": ["code"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"], "code_challenge_methods_supported": ["S256"],
        }  # fmt: skip

    def keys(self):
        return {"keys": [self._key.as_dict(private=False) | {"use": "sig", "alg": "RS256"}]}

    def authorize(self, query):
        assert query["client_id"] == CLIENT_ID
        assert query["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(12)
        self._granted[code] = query
        self.redirects.append(query["redirect_uri"])
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def token(self, form, authorization):
        query = self._granted.pop(form["code"])
        given = base64.b64decode(authorization.removeprefix("Basic ")).decode() if authorization else ""
        assert given == f"{CLIENT_ID}:{CLIENT_SECRET}"
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
        assert challenge.decode() == query["code_challenge"]
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 600, "nonce": query.get("nonce")}
        id_token = jwt.encode({"alg": "RS256", "kid": "one"}, claims | self.claims, self._key)
        return {
            "access_token": secrets.token_urlsafe(12), "token_type": "Bearer", "id_token": id_token, "expires_in": 600,
        }  # fmt: skip
