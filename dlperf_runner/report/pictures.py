"""Charts as SVG, PNG and PDF, and the program that draws them in a page: all by vl-convert, which
has Vega, Vega-Lite and their fonts' measures built in and needs no network.

vl-convert starts threads, after which a process must not fork: see `workers`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from html import escape
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from ..core.files import read_text, write_whole
from ..core.processors import processors
from .charts import FONTS, Chart, vega_lite

_SCALE = 1.5  # pixels of a PNG for one of the chart
_PICTURES_PER_WORKER = 16  # to start a worker costs as much as to draw nine


class Picture(NamedTuple):
    """One chart: text for a page or a file, and the same as pixels and for papers."""

    svg: str
    png: bytes
    pdf: bytes


def draw(chart: Chart) -> Picture:
    """The chart on white. The same chart always gives the same bytes on one machine."""
    import vl_convert

    head, shapes = vl_convert.vegalite_to_svg(vega_lite(chart)).split(">", 1)
    said = f"<title>{escape(chart.title)}</title><desc>{escape(chart.description)}</desc>"
    svg = f'{head} role="img">{said}{shapes}'
    return Picture(svg, vl_convert.svg_to_png(svg, scale=_SCALE), vl_convert.svg_to_pdf(svg))


def has_chinese_font() -> bool:
    """Whether this machine has Chinese letters: without, all look alike."""
    return look_different("\u6bd4", "\u901f")


def look_different(one: str, other: str) -> bool:
    """Whether two letters are not the same picture in the fonts of charts. Without a font that this
    machine has, vl-convert draws nothing."""
    import vl_convert

    text = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">'
    text += f'<text y="16" font-family="{FONTS}">{{}}</text></svg>'
    first, second = (vl_convert.svg_to_png(text.format(letter)) for letter in (one, other))
    return bool(first != second)


def program() -> str:
    """Vega and Vega-Lite as one script, which defines `vegaEmbed`. Putting it together takes two
    seconds, so the user's cache keeps it if it can be written."""
    import vl_convert

    # RuntimeError: the user has no home.
    with suppress(OSError, RuntimeError, UnicodeDecodeError):
        return read_text(_cache())
    script = vl_convert.javascript_bundle("window.vegaEmbed=vegaEmbed")
    with suppress(OSError, RuntimeError):
        write_whole(_cache(), script)
    return script


def _cache() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return folder / "dlperf_runner" / f"vega-{version('vl-convert-python')}.js"


@contextmanager
def workers(pictures: int) -> Iterator[ProcessPoolExecutor]:
    """New processes that draw so many pictures while this one goes on. They are not forks of this
    one, which may have threads of vl-convert."""
    most = min(processors(), 8)
    wanted = min(most, 1 + pictures // _PICTURES_PER_WORKER)
    with ProcessPoolExecutor(wanted, mp_context=get_context("spawn")) as pool:
        yield pool
