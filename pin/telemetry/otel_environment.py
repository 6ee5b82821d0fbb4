"""The OTEL_* variables, before their library reads them: what it cannot read is taken out and named once (A36).

Whoever fills the environment, an operator or a sidecar's injector, means other programs as well. The library raises for
some of these values when it is imported; telemetry must never keep a process from delivering.
"""

import math
import re
from collections.abc import Callable, MutableMapping
from urllib.parse import urlsplit

PREFIX = "OTEL_"
_SAMPLERS = frozenset(
    {
        *("always_on", "always_off", "traceidratio"),
        *("parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"),
    }
)
_FOLLOWED_HERE = "tracecontext"
"""The one propagator of ours: traces go by the header `traceparent`, whatever else is asked for."""


def _is_count(value: str) -> bool:
    return re.fullmatch(r"\d{1,9}", value.strip()) is not None


def _is_positive_count(value: str) -> bool:
    return _is_count(value) and int(value) > 0


def _is_seconds(value: str) -> bool:
    try:
        return 0 < float(value) < math.inf
    except ValueError:
        return False


def _is_ratio(value: str) -> bool:
    try:
        return 0 <= float(value) <= 1
    except ValueError:
        return False


def _is_url(value: str) -> bool:
    try:
        parts = urlsplit(value)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _is_list_of_pairs(value: str) -> bool:
    return all("=" in part and part.split("=")[0].strip() for part in value.split(",") if part.strip())


def _never(value: str) -> bool:
    del value
    return False


_RULES: tuple[tuple[re.Pattern[str], Callable[[str], bool]], ...] = tuple(
    (re.compile(name), holds)
    for name, holds in (
        (r"OTEL_BSP_\w+", _is_positive_count),
        (r"OTEL_\w+_LIMIT", _is_count),
        (r"OTEL_EXPORTER_OTLP(_TRACES)?_TIMEOUT", _is_seconds),
        (r"OTEL_EXPORTER_OTLP(_TRACES)?_ENDPOINT", _is_url),
        (r"OTEL_EXPORTER_OTLP(_TRACES)?_HEADERS", _is_list_of_pairs),
        (r"OTEL_EXPORTER_OTLP(_TRACES)?_COMPRESSION", lambda value: value.lower() in {"gzip", "deflate", "none"}),
        (r"OTEL_EXPORTER_OTLP(_TRACES)?_PROTOCOL", lambda value: value == "http/protobuf"),
        (r"OTEL_TRACES_SAMPLER", lambda value: value in _SAMPLERS),
        (r"OTEL_TRACES_SAMPLER_ARG", _is_ratio),
        (r"OTEL_RESOURCE_ATTRIBUTES", _is_list_of_pairs),
        (r"OTEL_PROPAGATORS", lambda value: value.strip() == _FOLLOWED_HERE),
        # Names of plug-ins, which are looked for when the library is imported.
        (r"OTEL_PYTHON_(CONTEXT|TRACER_PROVIDER|METER_PROVIDER|EVENT_LOGGER_PROVIDER|LOGGER_PROVIDER)", _never),
        (r"OTEL_PYTHON_\w*CREDENTIAL_PROVIDER", _never),
        (r"OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", _never),
    )
)


def take_out_unreadable(environment: MutableMapping[str, str]) -> tuple[str, ...]:
    """Remove the OTEL_* variables that this program does not follow; answers their names, sorted.

    An empty value means unset, as everywhere, and is not named. The batch size of an exporter must fit its queue.
    """
    given = {name: environment[name] for name in sorted(environment) if name.startswith(PREFIX)}
    ignored = [name for name, value in given.items() if value and not _follows(name, value)]
    for name in [*ignored, *(name for name, value in given.items() if not value)]:
        del environment[name]
    queue, batch = (environment.get(f"OTEL_BSP_MAX_{name}_SIZE") for name in ("QUEUE", "EXPORT_BATCH"))
    if int(batch or 512) > int(queue or 2048):
        sizes = [name for name in given if re.fullmatch(r"OTEL_BSP_MAX_\w+_SIZE", name) and name in environment]
        for name in sizes:
            del environment[name]
        ignored += sizes
    return tuple(sorted(ignored))


def _follows(name: str, value: str) -> bool:
    return next((holds(value) for form, holds in _RULES if form.fullmatch(name)), True)
