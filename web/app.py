"""The Litestar app: the contexts that the settings name, health, metrics and the API's description.

`uvicorn --factory web.app:create_app` serves it; nothing connects before the first request.
"""

import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from litestar import Litestar, Request, Response, Router
from litestar.datastructures import State
from litestar.di import Provide

from pin.config.faults import EXIT_BAD_SETTINGS, SettingsError
from pin.config.loading import load_settings
from pin.config.settings import Settings
from pin.telemetry.logs import configure_logging
from pin.telemetry.traces import close_tracing, configure_tracing
from web.auth import provide_caller
from web.bulkheads import Bulkheads, widths_of
from web.deps import Deps, build_deps
from web.health import health_router
from web.openapi import document, openapi_router
from web.problems import render
from web.tracing import traced


def create_app(settings: Settings | None = None) -> Litestar:
    """The app of these settings. Raises SettingsError when they cannot serve.

    Without `settings`, as an ASGI server calls it, it loads them, and ends the process with 78 if they are wrong (J7).
    """
    if settings is not None:
        return assemble(build_deps(settings))
    try:
        return assemble(build_deps(load_settings()))
    except SettingsError as error:
        sys.stderr.write(f"the web process does not start, its settings are wrong:\n{error}\n")
        raise SystemExit(EXIT_BAD_SETTINGS) from error


def assemble(deps: Deps) -> Litestar:
    """The app on given parts, which it closes at shutdown. Raises LookupError for a route that is not described."""
    contexts = _contexts(deps)
    answer: Callable[[Request[Any, Any, Any], Exception], Response[bytes]] = render
    if "ops" in deps.settings.contexts:
        from web.ops.router import open_console, ops_router, render_with_pages

        console = open_console(deps)
        contexts.append(ops_router(console))
        answer = render_with_pages(console)
    app = Litestar(
        route_handlers=[health_router(), openapi_router(), *contexts],
        dependencies={
            "deps": Provide(lambda: deps, sync_to_thread=False, use_cache=True),
            "caller": Provide(provide_caller, sync_to_thread=False),
        },
        exception_handlers={Exception: answer},
        middleware=[traced, Bulkheads(widths_of(deps.settings.web)).middleware],
        lifespan=[_lifespan(deps)],
        state=State({"deps": deps}),
        request_max_body_size=deps.settings.web.max_body_bytes,
        openapi_config=None,
        logging_config=None,
        debug=False,
    )
    document(app.routes)
    return app


def _contexts(deps: Deps) -> list[Router]:
    routers: list[Router] = []
    if "selections" in deps.settings.contexts:
        from web.selections.routes import selections_router

        routers.append(selections_router(deps))
    if "news" in deps.settings.contexts:
        from web.news.routes import news_router

        routers.append(news_router(deps))
    return routers


def _lifespan(deps: Deps) -> Callable[[Litestar], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def run(_: Litestar) -> AsyncIterator[None]:
        log = deps.settings.log
        configure_logging(log_format=log.format, level=log.level, process="web")
        configure_tracing("pin-web")
        logging.getLogger("uvicorn.access").disabled = True  # a request is in traces and metrics, a fault in the log
        try:
            yield
        finally:
            deps.close()
            close_tracing()

    return run
