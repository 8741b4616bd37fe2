"""A drawing as PNG, by Matplotlib's Agg. None of Matplotlib's figures and axes: they cost ten times
what the lines do, and the drawing has its own axes."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from typing import Any

from .charts import COLOURS, Box, Drawing, Mark, Stroke, Text
from .svg import OUTLINES

_SCALE = 1.5  # pixels of the picture for one of the drawing
_WHITE = "#ffffff"
_CONTROLS = re.compile(r"[\x00-\x1f\ud800-\udfff]")
_CHINESE = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "PingFang SC",
    "Microsoft YaHei",
    "SimHei",
    "Droid Sans Fallback",
)


def chinese_font() -> str | None:
    """A font of this machine that has Chinese letters; None where there is none."""
    from matplotlib import font_manager

    names = set(font_manager.get_font_names())
    return next((name for name in _CHINESE if name in names), None)


def render(drawing: Drawing, fonts: tuple[str, ...] = ("DejaVu Sans",)) -> bytes:
    """The picture; letters that no font has are boxes in it."""
    from matplotlib.backends.backend_agg import RendererAgg
    from PIL import Image

    make: Any = RendererAgg
    renderer = make(drawing.width * _SCALE, drawing.height * _SCALE, 72 * _SCALE)
    page = Box(0, 0, drawing.width, drawing.height, _WHITE)
    for shape in (page, *drawing.shapes):
        if not isinstance(shape, Text):
            _paint(renderer, shape, drawing.height)
    size = (int(renderer.width), int(renderer.height))
    image = Image.frombuffer("RGBA", size, renderer.buffer_rgba()).convert("RGB")
    for shape in drawing.shapes:
        if isinstance(shape, Text):
            _write(image, shape, fonts)
    buffer = BytesIO()
    # As few colours as there are, with their edges: a third of the bytes, in half the time.
    image = image.quantize(64, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    # Which makes of white the mean of all that is nearly white.
    image.putpalette([255 if part >= 253 else part for part in image.getpalette() or ()])
    image.save(buffer, "png", compress_level=2, dpi=(72 * _SCALE, 72 * _SCALE))
    return buffer.getvalue()


def _paint(renderer: Any, shape: Stroke | Box | Mark, height: int) -> None:
    from matplotlib.colors import to_rgb
    from matplotlib.transforms import Affine2D

    colour = to_rgb(COLOURS.get(shape.colour, (shape.colour,))[0])
    context = renderer.new_gc()
    context.set_foreground(colour, isRGBA=False)
    # Agg counts upwards.
    place = Affine2D().scale(_SCALE, -_SCALE).translate(0, height * _SCALE)
    if isinstance(shape, Stroke):
        # In points, of which each is _SCALE pixels, as places are.
        context.set_linewidth(shape.width)
        dashes = [float(number) for number in shape.dash.split()]
        context.set_dashes(0, dashes or None)
        path, face = _path(shape.points, closed=False), None
    elif isinstance(shape, Mark):
        context.set_linewidth(0 if shape.filled else 1.75)
        path = _outline(shape)
        face = colour if shape.filled else None
    else:
        x, y, right, bottom = shape.x, shape.y, shape.x + shape.width, shape.y + shape.height
        context.set_linewidth(0)
        path = _path([(x, y), (right, y), (right, bottom), (x, bottom)], closed=True)
        face = colour
    renderer.draw_path(context, path, place, face)


def _path(points: Sequence[tuple[float, float]], closed: bool) -> Any:
    from matplotlib.path import Path

    return Path([*points, points[0]] if closed else points, closed=closed)


def _outline(mark: Mark) -> Any:
    from matplotlib.path import Path

    if mark.shape == "circle":
        return Path.circle((mark.x, mark.y), 4.5)
    return _path([(mark.x + x, mark.y + y) for x, y in OUTLINES[mark.shape]], closed=True)


def _write(image: Any, text: Text, fonts: tuple[str, ...]) -> None:
    words = _CONTROLS.sub("\ufffd", text.text)
    letters, width, below = _letters(words, text.size, text.bold, fonts)
    shift = {"start": 0.0, "middle": width / 2, "end": width}[text.anchor]
    x, y = text.x * _SCALE, text.y * _SCALE
    if text.upright:
        from PIL import Image

        letters = letters.transpose(Image.Transpose.ROTATE_90)
        # Turned, the baseline stands, and the text begins at its foot.
        x, y = x - (letters.width - below), y + shift - letters.height
    else:
        x, y = x - shift, y - (letters.height - below)
    image.paste(COLOURS[text.colour][0], (round(x), round(y)), letters)


@lru_cache(maxsize=4096)
def _letters(words: str, size: int, bold: bool, fonts: tuple[str, ...]) -> tuple[Any, float, int]:
    """The letters' cover as a picture, their width, and what of its height is below the baseline.
    Kept: the charts of a report have most of their texts in common."""
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties
    from PIL import Image

    # At 72 dots in an inch, a point is a pixel.
    font = FontProperties(family=list(fonts), size=size, weight="bold" if bold else "normal")
    make: Any = RendererAgg
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        width, height, descent = make(1, 1, 72 * _SCALE).get_text_width_height_descent(
            words, font, ismath=False
        )
        below = math.ceil(descent) + 1
        renderer = make(math.ceil(width) + 2, math.ceil(height) + below + 1, 72 * _SCALE)
        baseline = int(renderer.height) - below
        renderer.draw_text(renderer.new_gc(), 0, baseline, words, font, 0, ismath=False)
    size_of = (int(renderer.width), int(renderer.height))
    cover = Image.frombuffer("RGBA", size_of, renderer.buffer_rgba()).getchannel("A")
    return cover, width, below
