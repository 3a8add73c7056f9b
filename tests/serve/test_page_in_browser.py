"""The page in a real browser: a person chooses or drops a picture and sees classes, bars and where the model looked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from serving import LABELS, LIMIT_S, Served, picture
from vitscope.infer.predictor import Predictor

BROWSE = Path(__file__).parent / "browse.py"
PYTHON = "/usr/bin/python3"
LOOKS_LIKE_HTML = LABELS[1]
TOKEN = "correct-horse-battery-staple"


def why_not() -> str | None:
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"{program} is not installed: `make browser` installs it"
    if subprocess.run([PYTHON, "-c", "import selenium"], capture_output=True, check=False).returncode:
        return "Debian's python3-selenium is not installed: `make browser` installs it"
    return None


def browse(server: Served, *args: str | Path) -> dict[str, Any]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [PYTHON, str(BROWSE), f"http://127.0.0.1:{server.port}", *map(str, args)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=3 * LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module", autouse=True)
def browser() -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def photograph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("photographs") / "my photograph.png"
    file.write_bytes(picture(0, (120, 90)))
    return file


@pytest.fixture(scope="module")
def tour(server: Served, photograph: Path) -> dict[str, Any]:
    return browse(server, photograph, "--tour")


def test_a_chosen_picture_shows_its_classes_as_bars(tour: dict[str, Any], small_model: Path, photograph: Path) -> None:
    (told,) = Predictor.load(small_model, device="cpu").classify(photograph)
    seen = tour["chosen"]
    assert (seen["name"], seen["title"]) == ("small-model", "small-model · vitscope")
    assert (seen["result"], seen["problem"]) == (True, "")
    assert seen["first"] == told.label
    assert [bar["label"] for bar in seen["bars"]] == [guess.label for guess in told.top_k]
    assert LOOKS_LIKE_HTML in {bar["label"] for bar in seen["bars"]}
    for bar, guess in zip(seen["bars"], told.top_k, strict=True):
        assert bar["share"] == f"{100 * guess.probability:.1f} %"
        assert bar["bar"] == pytest.approx(guess.probability, abs=0.02)
    assert seen["markup"] == 0, "a class's name was taken for HTML"


def test_the_overlay_is_shown_and_can_be_taken_away_by_keys(tour: dict[str, Any]) -> None:
    assert (tour["chosen"]["overlay"], tour["chosen"]["picture"]) == (True, False)
    assert tour["chosen"]["overlay_size"] == [120, 90]
    seen = tour["by_keys_picture"]
    assert (seen["focus"], seen["overlay"], seen["picture"]) == ("picture", False, True)
    seen = tour["by_keys_overlay"]
    assert (seen["focus"], seen["overlay"], seen["picture"]) == ("overlay", True, False)


def test_the_first_key_reaches_what_a_person_needs_first(tour: dict[str, Any]) -> None:
    assert tour["first_tab"]["focus"] == "choose"


def test_a_dropped_picture_is_looked_at(tour: dict[str, Any]) -> None:
    assert [bar["label"] for bar in tour["dropped"]["bars"]] == [bar["label"] for bar in tour["chosen"]["bars"]]
    assert tour["dropped"]["overlay"]


def test_what_is_no_picture_is_told_in_words(tour: dict[str, Any]) -> None:
    assert "not a picture" in tour["bad"]["problem"]
    assert not tour["bad"]["result"]


def test_a_narrow_window_needs_no_scrolling_sideways(tour: dict[str, Any]) -> None:
    assert tour["narrow"]["width"] == 0


def test_nothing_comes_from_elsewhere_and_nothing_is_refused(tour: dict[str, Any]) -> None:
    """The console holds what the policy forbids; the two lines it may hold are the bad file's."""
    assert tour["narrow"]["elsewhere"] == []
    assert [line for line in tour["console"] if "status of 415" not in line] == []


def test_a_token_is_asked_for(small_model: Path, photograph: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with Served(small_model, ["--token-file", str(token)]) as server:
        told = browse(server, photograph, "--token-file", token)
    assert (told["locked"]["door"], told["locked"]["name"]) == (True, "vitscope")
    assert (told["chosen"]["door"], told["chosen"]["problem"], len(told["chosen"]["bars"])) == (False, "", 5)
