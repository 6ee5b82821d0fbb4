"""The console's routes, below /ops, on news' database; closed to whoever is not signed in."""

from collections.abc import Callable

from litestar import Response, Router
from litestar.di import Provide

from pin.access.operators import read_operators
from pin.config.faults import Fault, SettingsError
from web.deps import Deps
from web.ops import alerts, assets, audit, control, entries, login, now, quarantine, runs, subject, system
from web.ops.console import OPS_PATH, AnyRequest, Console, provide_session, signed_in
from web.ops.errors import render_page
from web.ops.throttle import Throttle
from web.problems import render


def open_console(deps: Deps) -> Console:
    """The console's parts. Raises SettingsError where no operators are named: it is closed until they are."""
    file = deps.settings.ops.operators_file
    if file is None:
        raise SettingsError([Fault("ops.operators_file", None, "must be set where contexts holds ops")])
    return Console(deps, read_operators(file), Throttle(deps.clock))


def ops_router(console: Console) -> Router:
    """The routes. Only the sign-in page and the files that it needs are open to everyone."""
    pages = Router(
        path="/",
        guards=[signed_in(console)],
        dependencies={"session": Provide(provide_session, sync_to_thread=False)},
        route_handlers=[
            login.logout,
            now.now_page,
            now.live_part,
            entries.entries_page,
            entries.entry_page,
            runs.runs_page,
            runs.run_page,
            audit.audit_page,
            control.pause_job,
            control.resume_job,
            control.release_lock,
            quarantine.quarantine_page,
            quarantine.preview,
            quarantine.plan_page,
            quarantine.plan_live,
            quarantine.start,
            quarantine.stop,
            alerts.alerts_page,
            alerts.change_alerts,
            subject.subject_page,
            system.system_page,
        ],
    )
    return Router(
        path=OPS_PATH,
        dependencies={"console": Provide(lambda: console, sync_to_thread=False, use_cache=True)},
        route_handlers=[assets.static_file, login.login_page, login.login, pages],
    )


def render_with_pages(console: Console) -> Callable[[AnyRequest, Exception], Response[bytes]]:
    """The app's exception handler where there is a console: pages below /ops, problems elsewhere."""

    def answer(request: AnyRequest, error: Exception) -> Response[bytes]:
        path = request.scope["path"]
        inside = path == OPS_PATH or path.startswith(f"{OPS_PATH}/")
        return render_page(console, request, error) if inside else render(request, error)

    return answer
