"""All addresses a server answers at, behind one front."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from vitscope.core.errors import InputError
from vitscope.infer.predictor import Predictor
from vitscope.serve.answers import OTHER
from vitscope.serve.config import ServeConfig
from vitscope.serve.desk import Desk
from vitscope.serve.door import Door
from vitscope.serve.front import Front, as_json
from vitscope.serve.metrics import CONTENT_TYPE, Metrics
from vitscope.serve.overlay import can_be_drawn
from vitscope.serve.page import FILES, read_files
from vitscope.serve.refusal import Refusal
from vitscope.serve.routes import picture_routes
from vitscope.serve.rows import not_a_number, too_small
from vitscope.serve.schema import DESCRIPTION
from vitscope.version import __version__

SCHEMA = "/openapi.json"


def make_app(predictor: Predictor, config: ServeConfig, *, name: str, token: str | None = None) -> ASGIApp:
    """An ASGI application that answers with the predictor's model, which is called `name`."""
    desk = Desk(predictor, config, Metrics())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        desk.start()
        yield
        await desk.stop()

    app = FastAPI(
        title="vitscope",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        openapi_url=SCHEMA,
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    pictures, facts = picture_routes(desk), _fact_routes(desk, name)
    app.include_router(pictures)
    app.include_router(facts)
    for address, (content, kind) in read_files().items():
        app.add_api_route(address, _file(content, kind), methods=["GET", "HEAD"], include_in_schema=False)
    _tell_refusals(app)
    known = {SCHEMA, *FILES, *(getattr(route, "path", "") for route in (*pictures.routes, *facts.routes))}
    return Front(app, Door(token), desk.metrics, frozenset(known))


def _fact_routes(desk: Desk, name: str) -> APIRouter:
    """/model, /healthz, /readyz, /metrics."""
    router, predictor, config = APIRouter(), desk.predictor, desk.config

    @router.get("/model")
    async def model() -> dict[str, Any]:
        """What is asked here, and what may be sent."""
        return {
            "name": name,
            "kind": type(predictor.model).__name__,
            "classes": predictor.labels,
            "img_size": list(predictor.preprocessing.img_size),
            "device": str(predictor.device),
            "can_explain": can_be_drawn(predictor.model),
            "max_upload_bytes": config.max_upload_bytes,
            "max_pixels": config.pixel_limit,
            "max_pictures": config.queue,
        }

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "alive"}

    @router.get("/readyz")
    async def readyz() -> dict[str, str]:
        """Whether it would answer about a picture: 200 or 503."""
        if desk.not_ready is not None:
            raise Refusal(503, desk.not_ready, fix="ask again after the seconds in Retry-After", retry_after_s=1)
        return {"status": "ready"}

    @router.get("/metrics")
    async def metrics() -> Response:
        """In Prometheus' text format."""
        return Response(desk.metrics.text(), headers={"content-type": CONTENT_TYPE})

    return router


def _file(content: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    async def file() -> Response:
        return Response(content, headers={"content-type": kind})

    return file


def _tell_refusals(app: FastAPI) -> None:
    """Every refusal has one form, whoever refuses."""

    @app.exception_handler(Refusal)
    async def refused(_: Request, refusal: Refusal) -> JSONResponse:
        return as_json(refusal)

    @app.exception_handler(InputError)
    async def wrong(_: Request, error: InputError) -> JSONResponse:
        return as_json(Refusal(400, error.what, fix=error.fix or OTHER))

    @app.exception_handler(RequestValidationError)
    async def not_understood(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        name, given = str(first["loc"][-1]), first.get("input")
        least = first.get("ctx", {}).get("ge")
        return as_json(not_a_number(name, given) if least is None else too_small(name, least, given))

    @app.exception_handler(HTTPException)
    async def not_there(request: Request, error: HTTPException) -> JSONResponse:
        told = as_json(Refusal(error.status_code, str(error.detail), fix=f"what there is: {SCHEMA}"))
        told.headers.update(error.headers or {})
        return told

    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> JSONResponse:
        return as_json(Refusal(500, "the server failed on this request", fix="its log has the reason"))
