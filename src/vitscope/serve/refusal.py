"""Why a request got no answer: a status, what is wrong, and what to do about it."""

from __future__ import annotations

from typing import Any


class Refusal(Exception):  # noqa: N818  as often a row of an answer as an error
    """Told to the client as JSON: always what is wrong, and always what to do."""

    def __init__(self, status: int, what: str, *, fix: str, retry_after_s: int | None = None) -> None:
        super().__init__(what)
        self.status, self.what, self.fix, self.retry_after_s = status, what, fix, retry_after_s

    def content(self) -> dict[str, Any]:
        return {"error": self.what, "fix": self.fix}

    def headers(self) -> dict[str, str]:
        told = {} if self.retry_after_s is None else {"retry-after": str(self.retry_after_s)}
        return {**told, "www-authenticate": "Bearer"} if self.status == 401 else told


class ClientGoneError(Exception):
    """Nobody waits for the answer any more."""
