"""A drawing as PNG: lines by Matplotlib's Agg, letters by Pillow, which both bring. None of
Matplotlib's figures and axes: they cost ten times what the lines do, and the drawing has its own
axes. Nor its letters, which cost fifteen times what Pillow's do."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from io import BytesIO
from itertools import groupby
from typing import Any

from .charts import COLOURS, Box, Drawing, Mark, Stroke, Text
from .svg import OUTLINES

_SCALE = 1.5  # pixels of the picture for one of the drawing
_WHITE = "#ffffff"
_TONE = 8  # of 255, between two neighbours of the palette
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
    lines = [shape for shape in drawing.shapes if not isinstance(shape, Text)]
    for _, alike in groupby((page, *lines), _style):
        _paint(renderer, list(alike), drawing.height)
    size = (int(renderer.width), int(renderer.height))
    image = Image.frombytes("RGB", size, renderer.buffer_rgba(), "raw", "RGBX")
    for shape in drawing.shapes:
        if isinstance(shape, Text):
            _write(image, shape, fonts)
    # As few colours as there are, with their edges: a third of the bytes.
    image = image.quantize(palette=_palette(), dither=Image.Dither.NONE)
    buffer = BytesIO()
    image.save(buffer, "png", compress_level=2, dpi=(72 * _SCALE, 72 * _SCALE))
    return buffer.getvalue()


@cache
def _palette() -> Any:
    """White, and each colour with its tones on the way to white, of which edges consist."""
    from PIL import Image, ImageColor

    tones = [255, 255, 255]
    for light, _ in COLOURS.values():
        colour = ImageColor.getrgb(light)
        steps = max(1, (255 - min(colour)) // _TONE)
        for step in range(1, steps + 1):
            tones += [round(255 + (part - 255) * step / steps) for part in colour]
    image = Image.new("P", (1, 1))
    image.putpalette(tones)
    return image


# ---- lines


def _style(shape: Stroke | Box | Mark) -> tuple[object, ...]:
    """What neighbours have in common that can be painted at once."""
    if isinstance(shape, Stroke):
        return Stroke, shape.colour, shape.width, shape.dash
    if isinstance(shape, Mark):
        return Mark, shape.colour, shape.filled, shape.shape
    return Box, shape.colour


def _paint(renderer: Any, shapes: Sequence[Stroke | Box | Mark], height: int) -> None:
    """Shapes of one style."""
    from matplotlib.colors import to_rgb
    from matplotlib.path import Path

    shape = shapes[0]
    colour = to_rgb(COLOURS.get(shape.colour, (shape.colour,))[0])
    context = renderer.new_gc()
    context.set_foreground(colour, isRGBA=False)
    face = None
    if isinstance(shape, Stroke):
        # In points, of which each is _SCALE pixels, as places are.
        context.set_linewidth(shape.width)
        dashes = [float(number) for number in shape.dash.split()]
        context.set_dashes(0, dashes or None)
    elif isinstance(shape, Mark) and not shape.filled:
        context.set_linewidth(1.75)
    else:
        context.set_linewidth(0)
        face = colour
    corners: list[tuple[float, float]] = []
    codes: list[int] = []
    for one in shapes:
        more, how = _outline(one)
        corners += more
        codes += how
    renderer.draw_path(context, Path(corners, codes), _place(height), face)


@cache
def _place(height: int) -> Any:
    """From the drawing to Agg, which counts upwards."""
    from matplotlib.transforms import Affine2D

    return Affine2D().scale(_SCALE, -_SCALE).translate(0, height * _SCALE)


def _outline(shape: Stroke | Box | Mark) -> tuple[Sequence[tuple[float, float]], list[int]]:
    """Corners, and Matplotlib's codes of how they are joined."""
    from matplotlib.path import Path

    start, on, close = int(Path.MOVETO), int(Path.LINETO), int(Path.CLOSEPOLY)
    if isinstance(shape, Stroke):
        return shape.points, [start] + [on] * (len(shape.points) - 1)
    if isinstance(shape, Box):
        x, y, right, bottom = shape.x, shape.y, shape.x + shape.width, shape.y + shape.height
        return [(x, y), (right, y), (right, bottom), (x, bottom), (x, y)], [
            start,
            on,
            on,
            on,
            close,
        ]
    if shape.shape == "circle":
        circle, codes = _circle()
        return [(shape.x + x, shape.y + y) for x, y in circle], codes
    corners = [(shape.x + x, shape.y + y) for x, y in OUTLINES[shape.shape]]
    return [*corners, corners[0]], [start] + [on] * (len(corners) - 1) + [close]


@cache
def _circle() -> tuple[list[tuple[float, float]], list[int]]:
    from matplotlib.path import Path

    path: Any = Path.circle((0, 0), 4.5)
    return path.vertices.tolist(), path.codes.tolist()


# ---- letters


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
    from PIL import Image, ImageDraw

    faces = [_face(name, size, bold) for name in fonts]

    def face_of(letter: str) -> int:
        """The first that has the letter, or else the last."""
        has = (n for n, (_, letters) in enumerate(faces) if letters.get_char_index(ord(letter)))
        return next(has, len(faces) - 1)

    parts = [(faces[n][0], "".join(part)) for n, part in groupby(words, face_of)]
    width = sum(font.getlength(part) for font, part in parts)
    above, below = (max(of) for of in zip(*(font.getmetrics() for font, _ in faces), strict=True))
    cover = Image.new("L", (math.ceil(width) + 2, above + below))
    drawn, x = ImageDraw.Draw(cover), 0.0
    for font, part in parts:
        drawn.text((x, above), part, 255, font, anchor="ls")
        x += font.getlength(part)
    return cover, width, below


@cache
def _face(name: str, size: int, bold: bool) -> tuple[Any, Any]:
    """A font for Pillow, and for Matplotlib, which knows where it is and what letters it has."""
    from matplotlib import font_manager
    from PIL import ImageFont

    weight = "bold" if bold else "normal"
    path = font_manager.findfont(font_manager.FontProperties(family=[name], weight=weight))
    index = getattr(path, "face_index", 0)  # where a file holds several
    # The plain layout, which each Pillow has.
    plain = ImageFont.Layout.BASIC
    font = ImageFont.truetype(str(path), size * _SCALE, index, layout_engine=plain)
    return font, font_manager.get_font(path)
