"""A drawing of ours as PNG: the few shapes that ``svg.Drawing`` knows, through Pillow (``pip install 'meshwright[png]'``).

It reads what ``Drawing`` writes and nothing else: rectangles, circles, paths of straight lines, and words in Pillow's own font, so
that every machine draws the same. Curves, clips and style sheets of others are not its business.
"""

from __future__ import annotations

import io
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from meshwright.report.svg import INK, PAPER
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

SCALE, OVER = 2, 2
"""Pixels of the file for one of the drawing (192 dots an inch), and how many more are drawn and averaged for smooth edges."""
DOTS_PER_INCH = 96
MOST = 60_000_000
"""Pixels that are drawn at most; larger pictures are drawn at a smaller scale."""
_STEP = re.compile(r"([MLhZ])([^MLhZ]*)")
_TURNED = re.compile(r"rotate\(-90 ")


def png(svg: str) -> bytes:
    """The bytes of a PNG file.

    Errors:  ``ImportError`` without Pillow: whoever asks has looked before.
    """
    from PIL import Image, ImageDraw

    root = ElementTree.fromstring(svg)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    scale = max(1, min(SCALE * OVER, int((MOST / (width * height)) ** 0.5)))
    image = Image.new("RGB", (round(width * scale), round(height * scale)), PAPER)
    canvas = Canvas(image=image, draw=ImageDraw.Draw(image), scale=scale)
    for each in root:
        canvas.put(each.tag.rpartition("}")[2], each.attrib, each.text or "")
    if scale > SCALE:
        image = image.resize((round(width * SCALE), round(height * SCALE)), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    dots = DOTS_PER_INCH * min(scale, SCALE)
    image.save(stream, "PNG", optimize=True, dpi=(dots, dots))
    return stream.getvalue()


class Canvas(Value, frozen=True, kw_only=True):
    """An image that shapes are put on; lengths are the drawing's, times ``scale``."""

    image: Image
    draw: ImageDraw
    scale: int

    def put(self, tag: str, said: Mapping[str, str], words: str) -> None:
        """One shape; titles and style sheets have nothing to draw."""
        match tag:
            case "rect" if said.get("width") != "100%":
                self._rectangle(said)
            case "circle":
                x, y, radius = (float(said[name]) * self.scale for name in ("cx", "cy", "r"))
                edge = round(float(said.get("stroke-width", 1)) * self.scale) if "stroke" in said else 0
                self.draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=said["fill"], outline=said.get("stroke"),
                                  width=edge)
            case "path":
                self._path(said)
            case "text":
                self._text(said, words)

    def _rectangle(self, said: Mapping[str, str]) -> None:
        x, y, width, height = (float(said[name]) * self.scale for name in ("x", "y", "width", "height"))
        if width < 1 or height < 1:
            return
        box = (round(x), round(y), round(x + width) - 1, round(y + height) - 1)
        fill = self._mixed(said["fill"], float(said.get("opacity", 1)), box)
        self.draw.rectangle(box, fill=fill, outline=said.get("stroke"), width=self.scale if "stroke" in said else 0)

    def _mixed(self, colour: str, opacity: float, box: tuple[int, int, int, int]) -> Any:
        """A colour that lets through what lies below its middle."""
        if opacity >= 1:
            return colour
        from PIL import ImageColor

        at = (min(max((box[0] + box[2]) // 2, 0), self.image.width - 1), min(max((box[1] + box[3]) // 2, 0), self.image.height - 1))
        below, own = self.image.getpixel(at), ImageColor.getrgb(colour)
        assert isinstance(below, tuple), "the image has three channels"
        return tuple(round(one * (1 - opacity) + other * opacity) for one, other in zip(below, own, strict=False))

    def _path(self, said: Mapping[str, str]) -> None:
        """Lines, dots (a line of no length with round ends), and filled areas."""
        filled, opacity = said.get("fill", "none"), float(said.get("opacity", 1))
        wide = float(said.get("stroke-width", 1)) * self.scale
        for points, closed in _pieces(said["d"]):
            places = [(x * self.scale, y * self.scale) for x, y in points]
            middle = places[len(places) // 2]
            at = (round(middle[0]), round(middle[1]), round(middle[0]), round(middle[1]))
            if closed and filled != "none":
                self.draw.polygon(places, fill=self._mixed(filled, opacity, at))
            elif "stroke" in said:
                colour = self._mixed(said["stroke"], opacity, at)
                if said.get("stroke-linecap") == "round" and len(places) == 1:
                    (x, y), half = places[0], wide / 2
                    self.draw.ellipse((x - half, y - half, x + half, y + half), fill=colour)
                else:
                    dashes = [float(each) * self.scale for each in said.get("stroke-dasharray", "").split()]
                    for part in _dashed(places, dashes):
                        self.draw.line(part, fill=colour, width=max(1, round(wide)), joint="curve")

    def _text(self, said: Mapping[str, str], words: str) -> None:
        """Words on their baseline; bold is the same font with a stroke."""
        from PIL import Image, ImageDraw, ImageFont

        size = float(said.get("font-size", 11)) * self.scale
        font = ImageFont.load_default(size)
        bold = round(size / 28) if "font-weight" in said else 0
        anchor = {"middle": "ms", "end": "rs"}.get(said.get("text-anchor", "start"), "ls")
        x, y, fill = float(said["x"]) * self.scale, float(said["y"]) * self.scale, said.get("fill", INK)
        if not _TURNED.match(said.get("transform", "")):
            self.draw.text((x, y), words, font=font, fill=fill, anchor=anchor, stroke_width=bold / 2, stroke_fill=fill)
            return
        long, tall = round(font.getlength(words)) + 4, round(1.6 * size)
        strip = Image.new("L", (long, tall), 0)
        ImageDraw.Draw(strip).text((long / 2, 1.2 * size), words, font=font, fill=255, anchor="ms")
        strip = strip.rotate(90, expand=True)
        left = x - 1.2 * size
        top = y - long / 2 if anchor == "ms" else y - long
        self.image.paste(fill, (round(left), round(top)), strip)


def _pieces(path: str) -> Iterator[tuple[list[tuple[float, float]], bool]]:
    """The lines of a path: points, and whether they are closed."""
    points: list[tuple[float, float]] = []
    for command, numbers in _STEP.findall(path):
        values = [float(each) for each in numbers.replace(",", " ").split()]
        if command == "M":
            if points:
                yield points, False
            points = [(values[0], values[1])]
        elif command == "L":
            points += list(zip(values[::2], values[1::2], strict=True))
        elif command == "Z":
            yield points, True
            points = []
    if points:
        yield points, False


def _dashed(places: list[tuple[float, float]], dashes: list[float]) -> Iterator[list[tuple[float, float]]]:
    """A line as it is, or cut into dashes."""
    if len(dashes) < 2:
        yield places
        return
    drawn, left, piece = True, dashes[0], [places[0]]
    for (ax, ay), (bx, by) in pairwise(places):
        long, done = ((bx - ax) ** 2 + (by - ay) ** 2) ** 0.5, 0.0
        while long - done > left:
            done += left
            at = (ax + (bx - ax) * done / long, ay + (by - ay) * done / long)
            if drawn:
                yield [*piece, at]
            drawn, left, piece = not drawn, dashes[1 if drawn else 0], [at]
        left -= long - done
        piece = [*piece, (bx, by)] if drawn else [(bx, by)]
    if drawn and len(piece) > 1:
        yield piece
