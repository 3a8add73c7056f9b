"""What a real server answers: the same as the Predictor, in every form a request may have."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image

from serving import LABELS, Served, form, picture, read
from vitscope.infer.predictor import Predictor

FILES = [picture(number) for number in range(6)]


@pytest.fixture(scope="module")
def predictor(small_model: Path) -> Predictor:
    return Predictor.load(small_model, device="cpu")


def test_a_form_of_several_pictures_is_what_predict_says(server: Served, predictor: Predictor) -> None:
    answer = server.post("/predict", *FILES, fields={"top_k": "3"})
    assert answer.status == 200
    rows = answer.json()["predictions"]
    assert [row["path"] for row in rows] == ["0", "1", "2", "3", "4", "5"]
    wanted = predictor.classify(FILES, top_k=3)
    assert len({told.index for told in wanted}) > 2, "a model that says the same of all proves nothing"
    for row, told in zip(rows, wanted, strict=True):
        assert [guess["index"] for guess in row["top_k"]] == [guess.index for guess in told.top_k]
        assert [guess["label"] for guess in row["top_k"]] == [LABELS[guess.index] for guess in told.top_k]
        found = [guess["probability"] for guess in row["top_k"]]
        np.testing.assert_allclose(found, [guess.probability for guess in told.top_k], atol=1e-5)
        assert (row["label"], row["confidence"]) == (row["top_k"][0]["label"], found[0])


def test_all_ways_to_send_a_picture_are_one(server: Served) -> None:
    encoded = base64.b64encode(FILES[0]).decode()
    as_json = {"content-type": "application/json"}
    told = [
        server.post("/predict", FILES[0], fields={"top_k": "2"}),
        server.ask("POST", "/predict?top_k=2", FILES[0], {"content-type": "image/png"}),
        server.ask("POST", "/predict", json.dumps({"image": encoded, "top_k": 2}), as_json),
        server.ask("POST", "/predict?top_k=2", json.dumps({"images": [encoded]}), as_json),
        server.ask("POST", "/predict?top_k=2", json.dumps({"images": [{"name": "a", "data": encoded}]}), as_json),
        server.ask("POST", "/predict?top_k=2", json.dumps({"image": "data:image/png;base64," + encoded}), as_json),
    ]
    assert [answer.status for answer in told] == [200] * 6
    rows = [answer.json()["predictions"][0] for answer in told]
    assert [row.pop("path") for row in rows] == ["0", None, None, None, "a", None]
    for row in rows:
        assert [guess["label"] for guess in row["top_k"]] == [guess["label"] for guess in rows[0]["top_k"]]
        assert [guess["probability"] for guess in row["top_k"]] == pytest.approx(
            [guess["probability"] for guess in rows[0]["top_k"]], abs=1e-5
        )
        assert len(row["top_k"]) == 2


def test_a_body_in_chunks_without_a_length(server: Served) -> None:
    body, kind = form([("a", FILES[0])])
    pieces = (body[start : start + 100] for start in range(0, len(body), 100))
    answer = server.ask("POST", "/predict", pieces, kind, encode_chunked=True)
    assert (
        answer.json()["predictions"][0]["label"] == server.post("/predict", FILES[0]).json()["predictions"][0]["label"]
    )


def test_features_are_what_the_head_sees(server: Served, predictor: Predictor) -> None:
    import torch

    told = server.post("/features", *FILES).json()
    assert "after the last norm" in told["kind"]
    vectors = torch.tensor([row["vector"] for row in told["features"]])
    logits = predictor.model.get_submodule("head")(vectors)
    wanted = torch.tensor([told.index for told in predictor.classify(FILES)])
    assert logits.argmax(-1).equal(wanted)


def test_explain_is_a_picture_of_the_pictures_own_size(server: Served) -> None:
    content = picture(3, (90, 60))
    answer = server.post("/explain", content)
    assert (answer.status, answer.headers["content-type"]) == (200, "image/png")
    drawn = Image.open(io.BytesIO(answer.body))
    assert (drawn.size, drawn.mode) == ((90, 60), "RGB")
    assert drawn.tobytes() != Image.open(io.BytesIO(content)).tobytes()
    first = server.post("/explain?layer=0", content)
    assert first.status == 200
    assert first.body != answer.body
    assert server.post("/explain", content, fields={"layer": "0"}).body == first.body
    assert server.post("/explain?layer=0&head=1", content).body != first.body


def test_a_class_to_explain_has_a_label_and_a_number(server: Served, predictor: Predictor) -> None:
    asked = "/explain?method=gradient_rollout&target="
    for number, label in enumerate(predictor.labels[:2]):
        by_number = server.post(f"{asked}{number}", FILES[0])
        assert by_number.status == 200
        assert server.post(f"{asked}{quote(label)}", FILES[0]).body == by_number.body
        fields = {"method": "gradient_rollout", "target": label}
        assert server.post("/explain", FILES[0], fields=fields).body == by_number.body
    refused = server.post(f"{asked}nothing-of-the-kind", FILES[0])
    assert (refused.status, "expected a label, or a number from 0" in refused.json()["error"]) == (400, True)


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/explain?layer=9", "layer"),
        ("/explain?head=9", "head"),
        ("/explain?layer=x", "layer"),
        ("/explain?method=magic", "method"),
        ("/predict?top_k=0", "top_k"),
        ("/predict?top_k=x", "top_k"),
    ],
)
def test_settings_that_cannot_be_are_named(server: Served, path: str, named: str) -> None:
    answer = server.post(path, FILES[0])
    assert answer.status == 400
    assert named in answer.json()["error"]


def test_settings_of_a_form_are_checked_too(server: Served) -> None:
    for value in ("0", "many"):
        answer = server.post("/predict", FILES[0], fields={"top_k": value})
        assert (answer.status, "top_k" in answer.json()["error"]) == (400, True)
    assert server.post("/explain", *FILES[:2]).status == 400


@pytest.mark.parametrize(
    ("path", "fields", "fix"),
    [
        ("/predict", {"topk": "2"}, "did you mean 'top_k'?"),
        ("/predict?topk=2", {}, "did you mean 'top_k'?"),
        ("/predict", {"temperature": "2"}, "/predict takes top_k beside its pictures"),
        ("/predict", {"file": "picture.jpg"}, "curl -F file=@picture.jpg"),
        ("/features", {"layer": "2"}, "/features takes no settings"),
        ("/explain", {"layers": "1"}, "did you mean 'layer'?"),
        ("/explain?top_k=1", {}, "/explain takes method, layer, head, target beside its pictures"),
    ],
)
def test_settings_nobody_reads_are_refused(server: Served, path: str, fields: dict[str, str], fix: str) -> None:
    answer = server.post(path, FILES[0], fields=fields)
    assert answer.status == 400
    assert answer.json()["error"].startswith("unknown field '")
    assert fix in answer.json()["fix"]
    told = json.dumps({"image": base64.b64encode(FILES[0]).decode(), **fields})
    if "file" not in fields:
        assert server.ask("POST", path, told, {"content-type": "application/json"}).json() == answer.json()


PLAIN = {"content-type": "image/png"}
WRONG = {
    "not a number": ("POST", "/predict?top_k=x", FILES[0], PLAIN),
    "too small a number": ("POST", "/predict?top_k=0", FILES[0], PLAIN),
    "no such layer": ("POST", "/explain?layer=9", FILES[0], PLAIN),
    "no such head": ("POST", "/explain?head=9", FILES[0], PLAIN),
    "no such class": ("POST", "/explain?method=gradient_rollout&target=99", FILES[0], PLAIN),
    "no such method": ("POST", "/explain?method=magic", FILES[0], PLAIN),
    "nothing": ("POST", "/predict", b"", PLAIN),
    "no picture": ("POST", "/predict", b"hello", PLAIN),
    "half a picture": ("POST", "/predict", FILES[0][:60], PLAIN),
    "a kind nobody knows": ("POST", "/predict", FILES[0], {"content-type": "text/plain"}),
    "compressed": ("POST", "/predict", FILES[0], {**PLAIN, "content-encoding": "gzip"}),
    "not JSON": ("POST", "/predict", b"{", {"content-type": "application/json"}),
    "a list": ("POST", "/predict", b"[]", {"content-type": "application/json"}),
    "not base64": ("POST", "/predict", b'{"image": "?"}', {"content-type": "application/json"}),
    "a number for a picture": ("POST", "/predict", b'{"images": [1]}', {"content-type": "application/json"}),
    "images without a list": ("POST", "/predict", b'{"images": 1}', {"content-type": "application/json"}),
    "not a form": ("POST", "/predict", b"", {"content-type": "multipart/form-data"}),
    "no such address": ("GET", "/predictions", None, {}),
    "another method": ("GET", "/predict", None, {}),
    "another site": ("POST", "/predict", FILES[0], {**PLAIN, "origin": "http://elsewhere.org"}),
    "another host": ("GET", "/model", None, {"host": "elsewhere.org"}),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_every_error_says_what_and_what_to_do(server: Served, mistake: str) -> None:
    method, path, body, headers = WRONG[mistake]
    answer = server.ask(method, path, body, headers)
    assert 400 <= answer.status < 500
    told = answer.json()
    for row in (told, *told.get("predictions", ())):
        assert row["error"]
        assert row["fix"]
        assert "Input should be" not in row["error"], "that is how pydantic speaks"


def test_more_classes_than_there_are_is_all_of_them(server: Served) -> None:
    (row,) = server.post("/predict?top_k=99", FILES[0]).json()["predictions"]
    assert sorted(guess["label"] for guess in row["top_k"]) == sorted(LABELS)
    assert sum(guess["probability"] for guess in row["top_k"]) == pytest.approx(1)


def test_health_readiness_and_facts(server: Served) -> None:
    assert server.get("/healthz").json() == {"status": "alive"}
    assert server.get("/readyz").json() == {"status": "ready"}
    facts = server.get("/model").json()
    assert (facts["name"], facts["classes"], facts["img_size"]) == ("small-model", LABELS, [32, 32])
    assert facts["can_explain"] is True


def test_openapi_names_every_address_and_form(server: Served) -> None:
    told = server.get("/openapi.json").json()
    assert {"/predict", "/features", "/explain", "/model", "/healthz", "/readyz", "/metrics"} == set(told["paths"])
    asked = told["paths"]["/predict"]["post"]
    assert set(asked["requestBody"]["content"]) == {"multipart/form-data", "application/json", "image/*"}
    assert {"200", "400", "413", "503"} <= set(asked["responses"])
    assert "top_k" in {parameter["name"] for parameter in asked["parameters"]}


def test_metrics_count_what_was_asked(server: Served) -> None:
    before = server.counted('vitscope_pictures_total{path="/predict",outcome="answered"}')
    refused = server.counted('vitscope_requests_total{path="/predict",status="400"}')
    server.post("/predict", *FILES[:3])
    server.post("/predict", b"")
    assert server.counted('vitscope_pictures_total{path="/predict",outcome="answered"}') == before + 3
    assert server.counted('vitscope_requests_total{path="/predict",status="400"}') == refused + 1
    assert server.counted("vitscope_pictures_in_work") == 0
    told = server.get("/metrics")
    assert told.headers["content-type"].startswith("text/plain; version=0.0.4")


def test_invented_addresses_do_not_fill_the_metrics(server: Served) -> None:
    for number in range(5):
        assert server.get(f"/invented/{number}").status == 404
    told = server.get("/metrics").body.decode()
    assert "invented" not in told
    assert 'path="other",status="404"' in told


def test_the_page_loads_nothing_from_elsewhere(server: Served) -> None:
    for path, kind in (("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript")):
        answer = server.get(path)
        assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, kind)
        assert b"http://" not in answer.body
        assert b"https://" not in answer.body
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert server.get("/icon.svg").status == 200


def test_a_wrong_method_and_a_slash_too_many_are_told(server: Served) -> None:
    assert server.get("/predict").status == 405
    assert server.post("/predict/", FILES[0]).status == 404


def test_a_connection_is_used_again_after_an_error(server: Served) -> None:
    connection = server.connect()
    torn = b"\x89PNG\r\n\x1a\n torn"
    asked = [("image/png", FILES[0], 200), ("text/plain", FILES[0], 415), ("image/png", torn, 400)]
    for kind, body, status in [*asked, asked[0]]:
        connection.request("POST", "/predict", body, {"content-type": kind})
        assert read(connection).status == status
    connection.close()
