"""HTTP of the selections context: users' selections, and the internal API of their snapshots."""

from litestar import Router

from web.deps import Deps


def selections_router(_: Deps) -> Router:
    """The routes of the context."""
    return Router(path="/", route_handlers=[])
