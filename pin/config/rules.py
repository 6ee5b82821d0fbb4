"""The rules that bind several settings (J7, G6): a deadline that must end before another, a setting that needs one."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from pin.config.database_url import url_fault
from pin.config.faults import Fault
from pin.config.sections import FRESH
from pin.config.settings import Settings


def cross_field_faults(settings: Settings) -> Iterator[Fault]:
    """The rules that bind several fields (J7, G6), each as one fault naming the field to change."""
    retry, queue, worker, web = settings.retry, settings.queue, settings.worker, settings.web
    auth, database = settings.auth, url_fault(settings.database_url)
    call_time = -(-retry.batch_size // worker.concurrency) * retry.detach_call_timeout
    rules: list[tuple[str, object, bool, str]] = [
        (
            "retry.lock_ttl",
            retry.lock_ttl,
            retry.lock_ttl > retry.max_run_duration,
            f"must be longer than retry.max_run_duration ({retry.max_run_duration})",
        ),
        (
            "retry.detach_call_timeout",
            retry.detach_call_timeout,
            retry.detach_call_timeout < retry.max_run_duration,
            f"must be shorter than retry.max_run_duration ({retry.max_run_duration})",
        ),
        (
            "retry.backoff_cap",
            retry.backoff_cap,
            retry.backoff_cap >= retry.backoff_base,
            f"must be at least retry.backoff_base ({retry.backoff_base})",
        ),
        (
            "queue.lease",
            queue.lease,
            queue.lease + queue.poll < retry.backoff_base,
            f"plus queue.poll ({queue.poll}) must be shorter than retry.backoff_base ({retry.backoff_base})",
        ),
        (
            "worker.time_limit",
            worker.time_limit,
            call_time < worker.time_limit,
            f"must be longer than {call_time}, what retry.batch_size / worker.concurrency calls may take",
        ),
        (
            "queue.max_calls_in_flight",
            queue.max_calls_in_flight,
            queue.max_calls_in_flight >= min(worker.concurrency, retry.batch_size),
            f"must be at least worker.concurrency ({worker.concurrency}), the calls of one batch",
        ),
        (
            "queue.lease",
            queue.lease,
            worker.time_limit < queue.lease * FRESH,
            f"must be longer than worker.time_limit ({worker.time_limit}) / {FRESH}, the part it may start with",
        ),
        (
            "web.create_timeout",
            web.create_timeout,
            web.create_timeout < web.request_timeout,
            f"must be shorter than web.request_timeout ({web.request_timeout})",
        ),
        (
            "ops.operators_file",
            settings.ops.operators_file,
            "ops" not in settings.contexts or settings.ops.operators_file is not None,
            "must be set where contexts holds ops",
        ),
        (
            "selections_url",
            settings.selections_url,
            _is_base_url(settings.selections_url),
            "must be an http or https URL without query and fragment",
        ),
        (
            "auth.token_url",
            auth.token_url,
            auth.token_url is None or _is_base_url(auth.token_url),
            "must be an http or https URL without query and fragment",
        ),
        *(
            (
                field,
                url,
                url is None or not _is_base_url(url) or "@" not in url,
                "must hold no user name or password: news shows a bearer token (PIN_AUTH__…)",
            )
            for field, url in (("selections_url", settings.selections_url), ("auth.token_url", auth.token_url))
        ),
        (
            "auth.client_secret_file",
            auth.client_secret_file,
            auth.token_url is None or auth.client_secret_file is not None,
            "must name the file of the client's secret where auth.token_url is set",
        ),
        ("database_url", settings.database_url, database is None, database or ""),
    ]
    manager, hook = settings.alerts.alertmanager_url, settings.alerts.webhook_url
    sinks = (manager is not None) + (hook is not None)
    a_url = "must be an http or https URL"
    rules.append(("alerts.alertmanager_url", manager, manager is None or _is_url(manager), a_url))
    rules.append(("alerts.webhook_url", hook, hook is None or _is_url(hook.get_secret_value()), a_url))
    rules.append(
        (
            "alerts.timeout",
            settings.alerts.timeout,
            sinks * settings.alerts.timeout < worker.time_limit,
            f"for each of {sinks} sinks must together be shorter than worker.time_limit ({worker.time_limit})",
        )
    )
    for field, value, holds, rule in rules:
        if not holds:
            yield Fault(field, value, rule)


def _is_url(text: str) -> bool:
    try:
        return re.fullmatch(r"https?://[^\s/?#]+([/?#]\S*)?", text) is not None and urlsplit(text).port != 0
    except ValueError:
        return False


def _is_base_url(text: str) -> bool:
    try:
        return re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", text) is not None and urlsplit(text).port != 0
    except ValueError:  # a port out of range, a bracket left open
        return False
