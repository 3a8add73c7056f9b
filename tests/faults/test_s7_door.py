"""S7: no server for everybody without a token; no page of another site asks through a visitor's browser."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving import Answer, Served, form, picture, read
from vitscope.cli.main import main
from vitscope.serve.door import find_token

TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def guarded(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(f"{TOKEN}\n")
    with Served(small_model, ["--token-file", str(file), "--host", "0.0.0.0"]) as started:
        yield started


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_a_public_address_without_a_token_is_refused(
    host: str, small_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VITSCOPE_TOKEN", raising=False)
    assert main(["serve", str(small_model), "--host", host, "--port", "0"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"error: .*token is needed\nwhere: .*\nto do: .*--token-file token.*\n", err)


def test_a_token_of_nothing_is_none(
    small_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VITSCOPE_TOKEN", "")
    assert find_token(None) is None
    assert main(["serve", str(small_model), "--host", "0.0.0.0", "--port", "0"]) == 2
    assert "a token is needed" in capsys.readouterr().err


@pytest.mark.parametrize("token", [" ", "short", "with a space in the middle", "ünicode-is-not-for-headers"])
def test_a_token_anybody_could_guess_is_refused(
    token: str, small_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VITSCOPE_TOKEN", token)
    assert main(["serve", str(small_model), "--port", "0"]) == 2
    err = capsys.readouterr().err
    assert "token: expected 16 or more" in err
    assert token.strip() not in err or not token.strip()


def test_the_token_opens_and_nothing_else_does(guarded: Served) -> None:
    wrong = ["Bearer wrong", f"Basic {TOKEN}", TOKEN, "", f"Bearer {TOKEN}x"]
    for headers in ({}, *({"authorization": word} for word in wrong)):
        for answer in (
            guarded.post("/predict", picture(0), **headers),
            guarded.get("/metrics", **headers),
            guarded.get("/model", **headers),
            guarded.get("/openapi.json", **headers),
        ):
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert guarded.post("/predict", picture(0), authorization=f"Bearer {TOKEN}").status == 200
    assert guarded.get("/metrics", authorization=f"bearer {TOKEN}").status == 200


def test_the_page_and_the_probes_need_no_token(guarded: Served) -> None:
    for path in ("/", "/page.js", "/page.css", "/icon.svg", "/healthz", "/readyz"):
        assert guarded.get(path).status == 200


def test_the_token_is_never_said(guarded: Served) -> None:
    assert TOKEN not in guarded.said
    assert '-H "Authorization: Bearer $(cat /' in guarded.said


def test_the_token_may_come_from_the_environment(small_model: Path) -> None:
    with Served(small_model, env={"VITSCOPE_TOKEN": TOKEN}) as server:
        assert server.get("/model").status == 401
        assert server.get("/model", authorization=f"Bearer {TOKEN}").status == 200


def cross(server: Served, headers: dict[str, str]) -> Answer:
    body, kind = form([("a", picture(0))])
    return server.ask("POST", "/predict", body, {**kind, **headers})


def test_a_page_of_another_site_may_not_post(server: Served, guarded: Served) -> None:
    own = f"http://127.0.0.1:{server.port}"
    for origin in (
        "http://evil.example",
        "null",
        f"http://127.0.0.1:{server.port + 1}",
        "http://localhost.evil.example",
    ):
        assert cross(server, {"origin": origin}).status == 403
    assert cross(server, {"sec-fetch-site": "cross-site"}).status == 403
    assert cross(server, {"sec-fetch-site": "same-site", "origin": own}).status == 403
    assert cross(server, {"origin": own, "sec-fetch-site": "same-origin"}).status == 200
    token = {"authorization": f"Bearer {TOKEN}"}
    assert cross(guarded, {"origin": "http://evil.example", **token}).status == 403
    answer = server.ask("OPTIONS", "/predict", headers={"origin": "http://evil.example"})
    assert not {name for name in answer.headers if name.startswith("access-control")}


def with_host(server: Served, host: str | None, path: str = "/model") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.putrequest("GET", path, skip_host=True)
    if host is not None:
        connection.putheader("Host", host)
    connection.putheader("Authorization", f"Bearer {TOKEN}")
    connection.endheaders()
    status = read(connection).status
    connection.close()
    return status


def test_another_name_for_this_machine_is_refused_without_a_token(server: Served, guarded: Served) -> None:
    strangers = ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example"]
    for host in (*strangers, "[::2]", "192.168.0.1", ""):
        assert with_host(server, host) == 403
        assert with_host(server, host, "/") == 403
    for host in ("127.0.0.1", f"127.0.0.1:{server.port}", "localhost:9", "LOCALHOST", "[::1]:8000", "127.1.2.3"):
        assert with_host(server, host) == 200
    assert with_host(server, None) == 400
    assert with_host(guarded, "models.example") == 200
