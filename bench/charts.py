"""Bars of the calls a second, one chart a delay, as SVG that needs nothing else."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from bench.ratios import BOUNDS, PRODUCT, Sample, middle

_WIDTH, _BAR, _GAP, _NAMES, _TOP = 720, 22, 10, 170, 40


def draw(samples: Sequence[Sample], delays_ms: Sequence[int], folder: Path) -> list[Path]:
    """Write `calls-<delay>ms.svg` for each delay; answers the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for delay_ms in delays_ms:
        rates = {name: middle(samples, name, delay_ms, "calls_per_second") for name in (PRODUCT, *BOUNDS)}
        files.append(folder / f"calls-{delay_ms}ms.svg")
        files[-1].write_text(chart({name: rate for name, rate in rates.items() if rate is not None}, delay_ms))
    return files


def chart(rates: dict[str, float], delay_ms: int) -> str:
    """The bars, fastest first, the product's in a colour of its own."""
    most = max(rates.values(), default=1.0)
    rows = []
    for number, (name, rate) in enumerate(sorted(rates.items(), key=lambda item: -item[1])):
        y = _TOP + number * (_BAR + _GAP)
        length = (_WIDTH - _NAMES - 80) * rate / most
        colour = "#1f6feb" if name == PRODUCT else "#9aa4af"
        rows.append(
            f'<text x="{_NAMES - 8}" y="{y + 16}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{_NAMES}" y="{y}" width="{length:.1f}" height="{_BAR}" rx="3" fill="{colour}"/>'
            f'<text x="{_NAMES + length + 6:.1f}" y="{y + 16}">{rate:,.0f}</text>'
        )
    height = _TOP + len(rates) * (_BAR + _GAP)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif"'
        f' font-size="13" role="img" aria-label="Calls a second, endpoint of {delay_ms} ms">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>'
        f'<text x="12" y="22" font-size="15">Calls a second, endpoint of {delay_ms} ms, medians of one run</text>'
        + "".join(rows)
        + "</svg>\n"
    )
