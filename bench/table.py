"""The figures as a table: medians of the rounds."""

from collections.abc import Sequence

from bench.ratios import BOUNDS, CLIENT_LOOP, PLAIN_DRAMATIQ, PRODUCT, Sample, middle, ratio

_HEAD = (
    "endpoint",
    "system",
    "calls/s",
    "/ loop",
    "/ plain",
    "CPU s/1,000",
    "PostgreSQL CPU s/1,000",
    "statements/call",
    "+ BEGIN, COMMIT",
    "WAL bytes/call",
)


def table(samples: Sequence[Sample], delays_ms: Sequence[int]) -> list[str]:
    """Lines: a head, then one line a delay and system that was measured."""
    rows = [_HEAD]
    for delay_ms in delays_ms:
        measured = {sample.system for sample in samples if sample.delay_ms == delay_ms}
        for system in (PRODUCT, *BOUNDS):
            if system not in measured:
                continue
            against = [
                f"{ratio(samples, system, other, delay_ms):.2f}" if other in measured else "-"
                for other in (CLIENT_LOOP, PLAIN_DRAMATIQ)
            ]
            figures = [
                _figure(middle(samples, system, delay_ms, name), digits)
                for name, digits in (
                    ("cpu", 2),
                    ("postgres_cpu", 2),
                    ("statements", 3),
                    ("transaction_control", 3),
                    ("wal_bytes", 0),
                )
            ]
            rate = _figure(middle(samples, system, delay_ms, "calls_per_second"), 0)
            rows.append((f"{delay_ms} ms", system, rate, *against, *figures))  # type: ignore[arg-type]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    return [
        "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
