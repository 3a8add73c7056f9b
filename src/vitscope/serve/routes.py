"""The addresses that answer about pictures: /predict, /features, /explain."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from vitscope.core.errors import expected
from vitscope.serve import rows
from vitscope.serve.desk import Desk
from vitscope.serve.features import KIND
from vitscope.serve.overlay import METHODS, Wish
from vitscope.serve.refusal import Refusal
from vitscope.serve.room import Work
from vitscope.serve.schema import EXPLAINED, FEATURES, PREDICTIONS
from vitscope.serve.uploads import Asked

TOP_K = 5
WISHES = tuple(field.name for field in dataclasses.fields(Wish))


def picture_routes(desk: Desk) -> APIRouter:
    router, predictor, answers = APIRouter(), desk.predictor, desk.answers

    def prepared(asked: Asked) -> Sequence[Work[Any]]:
        return [
            Work(functools.partial(answers.pixels, picture), functools.partial(answers.prepare, picture))
            for picture in asked.pictures
        ]

    @router.post("/predict", **PREDICTIONS)
    async def predict(request: Request, top_k: Annotated[int, Query(ge=1)] = TOP_K) -> Response:
        """The likeliest classes of each picture, as probabilities. A picture that cannot be read has the reason in
        its place; where none can be, the status tells."""
        if not predictor.labels:
            raise Refusal(400, "the model has no classes", fix="/features takes any model")
        wanted = top_k

        def checked(asked: Asked) -> Sequence[Work[Any]]:
            nonlocal wanted
            rows.refuse_unknown(request, asked, ("top_k",))
            wanted = rows.number(asked.settings, "top_k", top_k, least=1) or TOP_K
            return prepared(asked)

        asked, found = await desk.ask(request, desk.predict, checked)
        rows.count(desk.metrics, "/predict", found)
        told = [
            rows.predicted(picture, one, predictor.labels, wanted)
            for picture, one in zip(asked.pictures, found, strict=True)
        ]
        return rows.as_answer("predictions", asked, told)

    @router.post("/features", **FEATURES)
    async def features(request: Request) -> Response:
        """Each picture as a vector: what the model's head sees of it."""

        def checked(asked: Asked) -> Sequence[Work[Any]]:
            rows.refuse_unknown(request, asked, ())
            return prepared(asked)

        asked, found = await desk.ask(request, desk.features, checked)
        rows.count(desk.metrics, "/features", found)
        told = [rows.vector(picture, one) for picture, one in zip(asked.pictures, found, strict=True)]
        return rows.as_answer("features", asked, told, kind=KIND)

    @router.post("/explain", **EXPLAINED)
    async def explain(
        request: Request,
        method: Annotated[str, Query(description=f"one of: {', '.join(METHODS)}")] = METHODS[0],
        layer: Annotated[int, Query(description="negative numbers count from the end")] = -1,
        head: Annotated[int | None, Query(description="the mean of all by default")] = None,
        target: Annotated[str | None, Query(description="a class's label or number; the likeliest by default")] = None,
    ) -> Response:
        """Where the model looks, laid over one picture: a PNG of the picture's own size, up to 4 megapixels."""
        wished = Wish(method=method, layer=layer, head=head, target=target)

        def drawable(asked: Asked) -> Sequence[Work[Any]]:
            if len(asked.pictures) > 1:
                raise Refusal(
                    400,
                    expected("pictures", "one at a time to explain", len(asked.pictures)),
                    fix="send a request for each",
                )
            rows.refuse_unknown(request, asked, WISHES)
            wish = rows.wish(asked.settings, wished)
            (picture,) = asked.pictures
            return [Work(lambda: answers.pixels(picture), lambda: (answers.picture(picture), wish))]

        _, (found,) = await desk.ask(request, desk.explain, drawable, turn=desk.drawing)
        rows.count(desk.metrics, "/explain", [found])
        if isinstance(found, Refusal):
            raise found
        return Response(found, media_type="image/png")

    return router
