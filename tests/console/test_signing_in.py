"""Who may come in, and whose forms count."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from litestar import Litestar
from litestar.routes import HTTPRoute
from litestar.testing import RequestFactory
from sqlalchemy import Engine, text

from pin.access.operators import Role, make_operator, read_operators, verify_password
from pin.clock import utc_now
from pin.config.faults import SettingsError
from pin.config.rules import cross_field_faults
from pin.config.sections import OpsOptions
from pin.config.settings import Settings
from tests.console.browsing import OPERATOR, PASSWORD, VIEWER, Reading, Visitor
from tests.serving import Keys, serving, settings_for
from web.app import create_app
from web.openapi import document
from web.ops.forms import same_origin
from web.ops.session import COOKIE, open_session, read_session
from web.ops.throttle import FREE, Guess, Throttle
from web.problems import ProblemError

pytestmark = pytest.mark.req("C5")

PAGES = ["/ops", "/ops/runs", "/ops/entries", "/ops/quarantine", "/ops/subject", "/ops/audit", "/ops/system"]


@pytest.fixture
def fresh(database: str, keys: Keys, operators_file: Path) -> Iterator[Callable[[], Visitor]]:
    """Visitors of a server that has seen no wrong password yet."""
    settings = settings_for(keys, database, contexts=("ops",), ops=OpsOptions(operators_file=operators_file))
    with serving(create_app(settings)) as url:
        yield lambda: Visitor(url)


def _routes(app: Litestar, method: str) -> list[str]:
    return sorted(
        route.path_format
        for route in app.routes
        if isinstance(route, HTTPRoute) and method in route.methods and route.path_format.startswith("/ops")
    )


def _app(database: str, keys: Keys, operators_file: Path) -> Litestar:
    return create_app(settings_for(keys, database, contexts=("ops",), ops=OpsOptions(operators_file=operators_file)))


@pytest.mark.parametrize("path", PAGES)
def test_a_stranger_is_led_to_the_sign_in_page_and_back(stranger: Visitor, path: str) -> None:
    answer = stranger.get(f"{path}?after=x")
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/ops/login?next=%2Fops")
    back = Reading(stranger.get(answer.headers["location"]).text).having("input", name="next")[0]["value"]
    assert back == f"{path}?after=x"
    assert stranger.sign_in(VIEWER, wanted=back).headers["location"] == back


def test_every_route_but_sign_in_and_its_files_is_closed_to_strangers(
    stranger: Visitor, database: str, keys: Keys, operators_file: Path
) -> None:
    app = _app(database, keys, operators_file)
    for path in _routes(app, "GET"):
        answer = stranger.get(path.replace("{", "").replace("}", ""))
        assert answer.status_code in ({200, 404} if "login" in path or "static" in path else {303}), path
    posts = _routes(app, "POST")
    assert len(posts) >= 8
    for path in posts:
        answer = stranger.send(path.replace("{", "").replace("}", ""), {"csrf": "x", "reason": "y", "name": "nobody"})
        assert answer.status_code == 401, path


def test_the_cookie_is_kept_from_scripts_and_other_sites(operator: Visitor) -> None:
    given = operator.sign_in(OPERATOR).headers["set-cookie"]
    assert {"HttpOnly", "Path=/ops", "SameSite=lax"} <= {part.strip() for part in given.split(";")}
    assert "secure" not in given.lower()
    behind = operator.send("/ops/login", {"name": OPERATOR, "password": PASSWORD}, **{"X-Forwarded-Proto": "https"})
    assert "secure" in behind.headers["set-cookie"].lower()


@pytest.mark.parametrize(
    "name",
    [OPERATOR, "nobody", "", "o" * 5000, "<script>alert(1)</script>"],
    ids=["known", "no", "empty", "long", "tag"],
)
def test_a_wrong_password_is_refused_in_the_same_words(fresh: Callable[[], Visitor], name: str) -> None:
    with fresh() as visitor:
        answer = visitor.send("/ops/login", {"name": name, "password": "wrong"})
        assert answer.status_code == 401
        assert COOKIE not in answer.cookies
        assert "do not belong together" in Reading(answer.text).text
        assert "<script>alert" not in answer.text


def test_an_address_waits_after_several_wrong_passwords(fresh: Callable[[], Visitor]) -> None:
    with fresh() as visitor:
        for _ in range(5):
            assert visitor.send("/ops/login", {"name": OPERATOR, "password": "wrong"}).status_code == 401
        answer = visitor.send("/ops/login", {"name": OPERATOR, "password": PASSWORD})
        assert answer.status_code == 429
        assert 0 < int(answer.headers["retry-after"]) <= 10
        assert COOKIE not in answer.cookies
    with fresh() as other:
        answer = other.send("/ops/login", {"name": OPERATOR, "password": PASSWORD}, **{"X-Forwarded-For": "192.0.2.7"})
        assert answer.status_code == 303


def test_guesses_side_by_side_are_counted_as_well() -> None:
    tried = itertools.count()
    throttle = Throttle(utc_now)

    def guess(_: int) -> Guess:
        return throttle.guess("192.0.2.1", lambda: next(tried) < 0)

    with ThreadPoolExecutor(30) as pool:
        answers = list(pool.map(guess, range(60)))
    assert set(answers) == {Guess.WRONG, Guess.REFUSED}
    assert (answers.count(Guess.WRONG), next(tried)) == (FREE, FREE)
    assert throttle.guess("192.0.2.2", lambda: True) is Guess.RIGHT


@pytest.mark.parametrize(
    "wanted",
    [
        "https://evil.example/ops",
        "//evil.example/ops",
        "/opsevil",
        "/ops/../api",
        "\\\\evil",
        "/ops\r\nX: y",
        "/ops/logout",
    ],
)
def test_a_sign_in_leads_nowhere_else(stranger: Visitor, wanted: str) -> None:
    location = stranger.sign_in(VIEWER, wanted=wanted).headers["location"]
    assert location == "/ops"


def test_a_session_ends_and_cannot_be_made_up() -> None:
    now = utc_now()
    one = make_operator("otto", Role.OPERATOR, "first")
    known = {"otto": one}
    cookie = open_session(one, now, timedelta(hours=1))
    assert read_session(cookie, known, now + timedelta(minutes=59)) is not None
    assert read_session(cookie, known, now + timedelta(hours=1)) is None
    assert read_session(cookie, {}, now) is None
    assert read_session(cookie, {"otto": make_operator("otto", Role.OPERATOR, "first")}, now) is None
    payload, _, signature = cookie.partition(".")
    for forged in (f"{payload}.", f".{signature}", "", "a.b", "é.é", f"{payload}x.{signature}", "x" * 5000):
        assert read_session(forged, known, now) is None


def test_signing_out_forgets_the_session(operator: Visitor) -> None:
    assert operator.change("/ops/logout").status_code == 303
    assert operator.get("/ops/audit").status_code == 303


@pytest.mark.parametrize(
    ("origin", "csrf"),
    [("https://evil.example", True), ("null", True), (None, True), ("", False)],
    ids=["another", "null", "none", "no-token"],
)
def test_a_foreign_form_changes_nothing(operator: Visitor, engine: Engine, origin: str | None, csrf: bool) -> None:
    fields = {"reason": "an attack", "csrf": operator.csrf if csrf else ""}
    answer = operator.send("/ops/pause", fields, origin=origin)
    assert answer.status_code == 403
    assert answer.headers["content-type"].startswith("text/html")
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM news.snapshot_detach_pause")).scalar() == 0


def test_another_sessions_token_does_not_count(operator: Visitor, viewer: Visitor) -> None:
    answer = operator.send("/ops/pause", {"reason": "borrowed", "csrf": viewer.csrf})
    assert answer.status_code == 403


def test_no_change_is_a_viewers(viewer: Visitor, database: str, keys: Keys, operators_file: Path) -> None:
    for path in _routes(_app(database, keys, operators_file), "POST"):
        if path in {"/ops/login", "/ops/logout"}:
            continue
        answer = viewer.change(path.replace("{", "").replace("}", ""), reason="why not")
        assert (answer.status_code, "viewer" in answer.text) == (403, True), path
    for path in PAGES:
        offered = {form["action"] for form in Reading(viewer.get(path).text).having("form", method="post")}
        assert offered <= {"/ops/logout", "/ops/quarantine/preview"}, path


def test_a_get_changes_nothing(operator: Visitor, database: str, keys: Keys, operators_file: Path) -> None:
    app = _app(database, keys, operators_file)
    pages = set(_routes(app, "GET"))
    for path in _routes(app, "POST"):
        if path not in pages:
            assert operator.get(path.replace("{", "").replace("}", "")).status_code == 405, path


@pytest.mark.parametrize(
    "line",
    ["otto", "otto:operator", "otto:admin:scrypt.1.1.1.a.b", ":viewer:x", "otto:viewer:plain", "a b:viewer:x", ""],
)
def test_a_faulty_operators_file_keeps_the_process_from_starting(tmp_path: Path, line: str) -> None:
    path = tmp_path / "operators"
    path.write_text(line)
    with pytest.raises(SettingsError, match=r"ops\.operators_file") as raised:
        read_operators(path)
    assert line == "" or line not in str(raised.value)


def test_the_console_is_closed_until_operators_are_named() -> None:
    assert [fault.field for fault in cross_field_faults(Settings(contexts=("news", "ops")))] == ["ops.operators_file"]
    assert list(cross_field_faults(Settings())) == []


def test_passwords_are_salted_and_compared_whole() -> None:
    one, other = make_operator("a", Role.VIEWER, "päss wörd"), make_operator("a", Role.VIEWER, "päss wörd")
    assert one.password_hash != other.password_hash
    assert verify_password("päss wörd", one.password_hash)
    assert not verify_password("päss wör", one.password_hash)
    assert not verify_password("päss wörd", one.password_hash.replace("scrypt.32768.", "scrypt.32767."))
    assert "päss" not in repr(one)
    assert one.password_hash not in repr(one)


def test_the_pages_are_no_part_of_the_apis_description(database: str, keys: Keys, operators_file: Path) -> None:
    app = _app(database, keys, operators_file)
    assert not [path for path in document(app.routes)["paths"] if path.startswith("/ops")]


@pytest.mark.case("A39")
@pytest.mark.parametrize(
    ("origin", "host", "same"),
    [
        ("https://console.example", "console.example:443", True),
        ("https://console.example:443", "Console.Example", True),
        ("http://console.example", "console.example:80", True),
        ("https://[::1]", "[::1]:443", True),
        ("https://console.example", "console.example:8443", False),
        ("https://console.example:8443", "console.example", False),
        ("http://console.example", "console.example:443", False),
        ("https://console.example", "other.example:443", False),
        ("https://console.example", "user@console.example:443", False),
        ("https://console.example", "console.example:x", False),
        ("null", "console.example", False),
    ],
)
def test_a_port_that_the_scheme_implies_may_be_written_or_not(origin: str, host: str, same: bool) -> None:
    request = RequestFactory().post("/ops/sign-in", headers={"origin": origin, "host": host})
    with contextlib.nullcontext() if same else pytest.raises(ProblemError):
        same_origin(request)
