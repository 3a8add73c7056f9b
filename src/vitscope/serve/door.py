"""Who may come in: this machine only, unless there is a token; never another site's page in a visitor's browser.

A page anywhere can make a browser send requests to 127.0.0.1. So a request that changes or costs something must come
from our own page or from no page (Origin), and without a token it must have been meant for this machine: a stranger's
name that has been pointed at 127.0.0.1 (DNS rebinding) is still the stranger's in Host.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from pathlib import Path

from vitscope.core.environment import serve_token
from vitscope.core.errors import UsageError, expected
from vitscope.serve.refusal import Refusal

OPEN = ("/", "/page.css", "/page.js", "/icon.svg", "/healthz", "/readyz")
"""Paths that hold no secret and cost nothing: they need no token."""
HARMLESS = ("GET", "HEAD", "OPTIONS")
SHORTEST = 16
MAKE_ONE = "python -c 'import secrets; print(secrets.token_urlsafe())' > token"


def find_token(file: str | None) -> str | None:
    """From the file, else from $VITSCOPE_TOKEN; None where there is neither."""
    if file is None:
        return _usable(serve_token() or None, "VITSCOPE_TOKEN")  # set to nothing is not set
    try:
        return _usable(Path(file).expanduser().read_text(encoding="utf-8"), file)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the token file '{file}' cannot be read", where=str(error), fix=MAKE_ONE) from None


def refuse_open_door(host: str, token: str | None) -> None:
    if token is None and not is_this_machine(host):
        raise UsageError(
            f"to listen on {host}, where other machines can reach it, a token is needed",
            where="--host, without --token-file or VITSCOPE_TOKEN",
            fix=f"`{MAKE_ONE}` and add --token-file token; or leave --host away",
        )


def is_this_machine(host: str) -> bool:
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Door:
    """Looks at a request before anything of it is read."""

    def __init__(self, token: str | None) -> None:
        self._token = None if token is None else token.encode()

    def check(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        """Headers by their names in lower case. Raises Refusal."""
        host = headers.get("host", "")
        if self._token is None and not is_this_machine(_without_port(host)):
            raise Refusal(
                403,
                f"this server answers to 127.0.0.1 and localhost, not to '{host[:80]}'",
                fix="start it with a token to reach it by other names",
            )
        if method not in HARMLESS:
            _refuse_strangers_page(headers, host)
        if self._token is not None and path not in OPEN:
            word, _, given = headers.get("authorization", "").partition(" ")
            if word.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token):
                raise Refusal(401, "a token is needed", fix="send `Authorization: Bearer TOKEN`")


def _refuse_strangers_page(headers: Mapping[str, str], host: str) -> None:
    origin = headers.get("origin")
    ours = origin is None or origin.partition("://")[2].lower() == host.lower()
    if not ours or headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise Refusal(
            403,
            f"a page of another site may not ask ({(origin or 'no Origin')[:80]})",
            fix="ask from the server's own page, or from a program",
        )


def _without_port(host: str) -> str:
    """`127.0.0.1:8000` -> `127.0.0.1`; `[::1]:8000` -> `[::1]`."""
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def _usable(text: str | None, where: str) -> str | None:
    token = (text or "").strip()
    if text is None:
        return None
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        wanted = f"{SHORTEST} or more letters, digits and signs, without spaces"
        raise UsageError(expected("token", wanted, f"{len(token)} that do not fit"), where=where, fix=MAKE_ONE)
    return token
