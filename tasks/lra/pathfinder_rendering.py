"""The pixels of a Pathfinder image, from its paddles and discs, compiled by numba."""

from typing import TypeAlias

import numpy as np
from jaxtyping import Float64, Int64, UInt8
from numba import njit

from tasks.lra.pathfinder_tables import FULL, Tables

Canvas: TypeAlias = Float64[np.ndarray, "h h"]
Levels: TypeAlias = UInt8[np.ndarray, "h h"]
Patch: TypeAlias = UInt8[np.ndarray, "w w"]
Paddles: TypeAlias = Int64[np.ndarray, "p 3"]
Pixels: TypeAlias = Int64[np.ndarray, "k 2"]


@njit(nogil=True)
def render(tables: Tables, paddles: Paddles, discs: Pixels, image: Levels) -> None:
    """Draw paddles and discs, and scale the darkest pixel to 0 and the brightest to 255."""
    canvas = np.zeros((tables.size, tables.size))
    for number in range(len(paddles)):
        y, x, direction = paddles[number]
        contrast = tables.contrast if number < 2 * tables.contour else tables.clutter
        put(canvas, tables.lines[direction], y, x, contrast)
    side = len(tables.discs)
    half = side // 2
    for end in range(2):
        # Away from the border all discs are equal: the one in the middle of the small window.
        y, x = discs[end]
        row = min(max(y, half), tables.size - side + half)
        column = min(max(x, half), tables.size - side + half)
        put(canvas, tables.discs[y - row + half, x - column + half], row, column, 1.0)
    lowest = canvas.min()
    scale = FULL / (canvas.max() - lowest)
    for y in range(tables.size):
        for x in range(tables.size):
            # The conversion truncates: adding a half rounds.
            image[y, x] = int((canvas[y, x] - lowest) * scale + 0.5)


@njit(nogil=True)
def put(levels: Canvas | Levels, patch: Patch, y: int, x: int, contrast: float) -> None:
    """Draw a patch around a pixel of an image or a mask, by maximum, clipped to the window."""
    size, half = len(levels), len(patch) // 2
    for row in range(max(y - half, 0), min(y + half + 1, size)):
        for column in range(max(x - half, 0), min(x + half + 1, size)):
            level = contrast * patch[row - y + half, column - x + half]
            if level > levels[row, column]:
                levels[row, column] = level
