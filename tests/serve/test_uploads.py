"""Reading what requests bring: forms to the byte, JSON, limits; damage is told and never taken for a picture."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import form
from vitscope.serve.kinds import is_known
from vitscope.serve.multipart import boundary_of, parts_of
from vitscope.serve.refusal import Refusal
from vitscope.serve.uploads import read_upload

CHARACTERS = st.characters(codec="utf-8", exclude_characters=chr(34) + chr(92), exclude_categories=["Cs", "Cc"])
NAMES = st.text(CHARACTERS, max_size=20)


@given(st.lists(st.tuples(NAMES, st.binary(max_size=200)), max_size=5), st.booleans())
def test_every_form_comes_back_to_the_byte(files: list[tuple[str, bytes]], with_field: bool) -> None:
    body, headers = form(files, {"top_k": "3"} if with_field else None)
    parts = parts_of(body, boundary_of(headers["content-type"]), most=10)
    found = [(part.filename, bytes(part.content)) for part in parts if part.filename is not None]
    assert found == files
    assert [bytes(part.content) for part in parts if part.filename is None] == ([b"3"] if with_field else [])


@given(st.data())
def test_a_form_cut_anywhere_is_refused(data: st.DataObject) -> None:
    body, headers = form([("a", b"one\r\n--two"), ("b", b"")])
    cut = data.draw(st.integers(0, len(body) - 5))
    with pytest.raises(Refusal) as refused:
        parts_of(body[:cut], boundary_of(headers["content-type"]), most=10)
    assert refused.value.status == 400


@given(st.binary(max_size=300))
def test_no_body_breaks_the_reader(body: bytes) -> None:
    for content in (body, b"--b\r\n" + body, b"--b\r\n\r\n" + body + b"\r\n--b--"):
        try:
            parts_of(content, "b", most=10)
        except Refusal as refused:
            assert refused.status in (400, 413)


def test_what_browsers_and_programs_write_is_read() -> None:
    body = b"\r\n".join(
        [
            b"a preamble nobody reads",
            b"--x  ",
            b"content-disposition:form-data; NAME=file; FileName=plain.png",
            b"Content-Type: image/png",
            b"",
            b"1",
            b"--x",
            b'Content-Disposition: form-data; name="file"; filename="a \\"b\\"; c.png"',
            b"",
            b"--x is content",
            b"--x--",
            b"an epilogue",
        ]
    )
    assert [(part.name, part.filename, bytes(part.content)) for part in parts_of(body, "x", most=3)] == [
        ("file", "plain.png", b"1"),
        ("file", 'a "b"; c.png', b"--x is content"),
    ]
    assert boundary_of('multipart/form-data; charset=utf-8; boundary="a b"') == "a b"


def test_a_form_has_a_limit_of_parts() -> None:
    body, headers = form([(str(number), b"x") for number in range(5)])
    boundary = boundary_of(headers["content-type"])
    assert len(parts_of(body, boundary, most=5)) == 5
    with pytest.raises(Refusal, match="more than 4"):
        parts_of(body, boundary, most=4)


def test_a_field_that_is_a_picture_without_a_name_is_told() -> None:
    body, headers = form([], {"file": "x" * 2000})
    with pytest.raises(Refusal, match="too long"):
        read_upload(headers["content-type"], bytearray(body), most=5)


def test_json_brings_pictures_and_settings() -> None:
    text = base64.b64encode(b"abc").decode()
    told = {"images": [text, {"name": "n", "data": f"data:image/png;base64,{text}"}], "top_k": 3, "head": None}
    asked = read_upload("application/json; charset=utf-8", bytearray(json.dumps(told).encode()), most=5)
    assert [(one.name, bytes(one.content)) for one in asked.pictures] == [(None, b"abc"), ("n", b"abc")]
    assert asked.settings == {"top_k": "3"}


@pytest.mark.parametrize("begin", [b"%!PS", b"\xc5\xd0\xd3\xc6", b"%PDF", b"PK\x03\x04", b"\x7fELF", b"<svg", b""])
def test_kinds_that_are_programs_are_not_let_in(begin: bytes) -> None:
    for rest in (b"", b"ftypavif", b"RIFF....WEBP", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"):
        if begin or not rest:
            assert not is_known(begin + rest)


def test_names_are_such_as_can_be_told_back() -> None:
    told = {"images": [{"name": "a\ud800b", "data": ""}, {"name": "x" * 10_000, "data": ""}, {"name": "", "data": ""}]}
    asked = read_upload("application/json", bytearray(json.dumps(told).encode()), most=9)
    assert [one.name for one in asked.pictures] == ["a?b", "x" * 255, None]
    body, headers = form([("y" * 5000, b"1")])
    (one,) = read_upload(headers["content-type"], bytearray(body), most=9).pictures
    assert one.name == "y" * 255
