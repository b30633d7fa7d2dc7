"""Tokens that only this server can have issued: signatures of thinking, encrypted reasoning.

A token is a JSON payload and its HMAC. The payload is readable, which a real one is not, but it
cannot be altered or made up, which is what clients must be held to.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

from tests.support.provider.transcript import Json


def digest(*texts: str) -> str:
    """A short digest of texts, separated so that they cannot run into each other."""
    running = hashlib.sha256()
    for text in texts:
        running.update(f"{len(text)}:{text}".encode())
    return running.hexdigest()[:20]


class Signer:
    """Issues and verifies tokens. Two servers with one secret accept each other's."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def issue(self, payload: Json, *, prefix: str = "") -> str:
        """A token for ``payload``, led by ``prefix``."""
        body = base64.urlsafe_b64encode(json.dumps(payload, sort_keys=True).encode()).decode()
        return f"{prefix}{body}.{self._mac(body)}"

    def read(self, token: object, *, prefix: str = "") -> Json | None:
        """The payload of a token that this server issued unaltered, else ``None``."""
        if not isinstance(token, str) or not token.startswith(prefix):
            return None
        body, _, mac = token[len(prefix) :].partition(".")
        if not hmac.compare_digest(mac, self._mac(body)):
            return None
        payload: Json = json.loads(base64.urlsafe_b64decode(body))
        return payload

    def _mac(self, body: str) -> str:
        return hmac.new(self._secret, body.encode(), hashlib.sha256).hexdigest()[:32]
