"""What the tests of training share."""

from __future__ import annotations

import pytest

from vitscope.train import finish


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that draw nothing: pictures take most of the time of a run of a few steps."""
    monkeypatch.setattr(finish, "_draw", lambda *_: None)
