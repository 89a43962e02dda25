"""Documents that are pictures, as PNG files: one alone, and many on one sheet."""

import io
import math
from collections.abc import Sequence

import numpy as np
from PIL import Image

ENLARGED = 4
"""Pixels of a file along each side of one pixel of a document."""

COLUMNS = 6
"""Pictures side by side on a sheet."""


def png(levels: Sequence[int]) -> bytes:
    """The file of a square picture; `levels` is its pixels 0..255 in raster order."""
    return _file(_square(levels))


def sheet(sequences: Sequence[Sequence[int]]) -> bytes:
    """The file of square pictures of one size, from left to right and from top to bottom."""
    squares = [_square(levels) for levels in sequences]
    squares += [np.zeros_like(squares[0])] * (-len(squares) % COLUMNS)
    rows = [np.hstack(squares[at : at + COLUMNS]) for at in range(0, len(squares), COLUMNS)]
    return _file(np.vstack(rows))


def _square(levels: Sequence[int]) -> np.ndarray:
    side = math.isqrt(len(levels))
    return np.array(levels, np.uint8).reshape(side, side)


def _file(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    wide = pixels.repeat(ENLARGED, axis=0).repeat(ENLARGED, axis=1)
    Image.fromarray(wide).save(file, "PNG")
    return file.getvalue()
