"""One image of Pathfinder, compiled by numba: two snakes, distractors, two discs.

The rules are those of Linsley et al., 2018, arXiv 1805.08315, and of their published generator at
the sizes of the Long Range Arena (Tay et al., 2021, arXiv 2011.04006). Levels of images and masks
are in 0..255 and combine by maximum; a pixel is free where the mask is at most 0.3 of 255.

* Initially the mask covers the window's border. The tail of the first snake is a random pixel at
  which the mask of a paddle at a random integer angle is free, where a band of twice the distance
  of the tails counts as covered on every side; the second tail is at that distance from it, and
  need not be free. Heads and pivots are inside the window.
* The snakes grow alternately. The next pivot lies straight ahead; a head is drawn from the pixels
  on a circle around it, with weight (1 - mask dilated by a disc of radius m) * cos(turn)^2, and
  rejected where its paddle's mask and the mask add up to 1.8 or more. Then the paddle before it is
  added to the mask: a snake does not collide with its newest joint. Where a snake cannot grow, the
  pair starts again.
* Distractors start anywhere, and grow in the same way. Their mask lacks the first snake's last
  paddle, as in the original.
* Discs lie on the tail of one snake, and on the last head of the same (class 1) or of the other.

All draws use `Generator.random`, whose stream NumPy guarantees.
"""

from typing import TypeAlias

import numpy as np
from jaxtyping import Float64
from numba import njit
from numpy.random import Generator

from tasks.lra.pathfinder_growth import (
    MAX_FREE,
    Cells,
    Levels,
    Paddles,
    Patch,
    Point,
    cover,
    extend,
    inside,
    seed,
    seed_second,
)
from tasks.lra.pathfinder_tables import FULL, Tables

Canvas: TypeAlias = Float64[np.ndarray, "h h"]

DISTRACTOR_ATTEMPTS = 5

MIN_FREE = 0.01
"""The share of free pixels below which no distractor is started."""


# Compiled in each process that generates: an on-disk cache of machine code needs a writable folder
# next to the package, and importing this module would fail without one.
@njit(nogil=True)
def draw(
    rng: Generator, tables: Tables, image: Levels, paddles: Paddles, discs: Cells
) -> tuple[int, int, int]:
    """Draw one image.

    Args:
        rng: the source of randomness.
        tables: the tables of the size.
        image: receives the pixels.
        paddles: receives (y, x, direction) of each paddle, y and x being its tail where the
            direction is an integer angle, its head where not: the first snake's, the second's, and
            then the distractors'.
        discs: receives the centres of both discs.

    Returns:
        The class (1 where both discs are on one snake), the number of paddles, and the number of
        attempts at a pair of snakes.
    """
    label = int(2 * rng.random())
    mask = np.empty((tables.size, tables.size), np.uint8)
    attempts = 1
    while not grow_pair(rng, tables, mask, paddles):
        attempts += 1
    count = 2 * tables.contour
    for _ in range(tables.distractors):
        if scatter(rng, tables, mask, paddles[count:]):
            count += tables.distractor_contour
    origin = int(2 * rng.random())
    terminal = origin if label == 1 else 1 - origin
    ends = (paddles[origin * tables.contour], paddles[(terminal + 1) * tables.contour - 1])
    for end in range(2):
        discs[end, 0], discs[end, 1] = ends[end][0], ends[end][1]
    render(tables, paddles[:count], discs, image)
    return label, count, attempts


@njit(nogil=True)
def grow_pair(rng: Generator, tables: Tables, mask: Levels, paddles: Paddles) -> bool:
    """Try once to draw the two snakes; `mask` is overwritten."""
    for y in range(tables.size):
        for x in range(tables.size):
            mask[y, x] = 0 if inside(tables.size, tables.border, y, x) else FULL
    pivots = np.empty((2, 2), np.int64)
    first, second = paddles[: tables.contour], paddles[tables.contour : 2 * tables.contour]
    if not seed(rng, tables, mask, True, first[0], pivots[0]):
        return False
    if not seed_second(rng, tables, first[0], second[0], pivots[1]):
        return False
    for joint in range(1, tables.contour):
        if not extend(rng, tables, mask, first[joint - 1], first[joint], pivots[0]):
            return False
        if not extend(rng, tables, mask, second[joint - 1], second[joint], pivots[1]):
            return False
    cover(mask, tables.masks[second[-1, 2]], second[-1])
    return True


@njit(nogil=True)
def scatter(rng: Generator, tables: Tables, mask: Levels, paddles: Paddles) -> bool:
    """Try a few times to draw one distractor; on success add it to `mask`."""
    pivot = np.empty(2, np.int64)
    for _ in range(DISTRACTOR_ATTEMPTS):
        free = 0
        for level in mask.flat:
            free += level <= MAX_FREE
        if free < MIN_FREE * mask.size:
            return False
        trial = mask.copy()
        started = seed(rng, tables, trial, False, paddles[0], pivot)
        if started and grow(rng, tables, trial, paddles, pivot):
            for y in range(tables.size):
                for x in range(tables.size):
                    mask[y, x] = trial[y, x]
            return True
    return False


@njit(nogil=True)
def grow(rng: Generator, tables: Tables, mask: Levels, paddles: Paddles, pivot: Point) -> bool:
    """Try to draw the other paddles of a distractor; `pivot` is that of its first."""
    for joint in range(1, tables.distractor_contour):
        if not extend(rng, tables, mask, paddles[joint - 1], paddles[joint], pivot):
            return False
    last = paddles[tables.distractor_contour - 1]
    cover(mask, tables.masks[last[2]], last)
    return True


@njit(nogil=True)
def render(tables: Tables, paddles: Paddles, discs: Cells, image: Levels) -> None:
    """Draw paddles and discs, and scale the darkest pixel to 0 and the brightest to 255."""
    canvas = np.zeros((tables.size, tables.size))
    for number in range(len(paddles)):
        y, x, direction = paddles[number]
        contrast = tables.contrast if number < 2 * tables.contour else tables.clutter
        half = tables.lines.shape[1] // 2
        put(canvas, tables.lines[direction], y - half, x - half, contrast)
    side = len(tables.discs)
    for end in range(2):
        # Away from the border all discs are equal: the one in the middle of the small window.
        y, x = discs[end]
        top = min(max(y - side // 2, 0), tables.size - side)
        left = min(max(x - side // 2, 0), tables.size - side)
        put(canvas, tables.discs[y - top, x - left], top, left, 1.0)
    lowest, highest = np.inf, 0.0
    for level in canvas.flat:
        lowest, highest = min(lowest, level), max(highest, level)
    scale = FULL / (highest - lowest)
    for y in range(tables.size):
        for x in range(tables.size):
            # The conversion truncates: adding a half rounds.
            image[y, x] = np.uint8((canvas[y, x] - lowest) * scale + 0.5)


@njit(nogil=True)
def put(canvas: Canvas, patch: Patch, top: int, left: int, contrast: float) -> None:
    """Draw a patch on an image, by maximum, clipped to the window."""
    size = len(canvas)
    for row in range(max(top, 0), min(top + len(patch), size)):
        for column in range(max(left, 0), min(left + len(patch), size)):
            level = contrast * patch[row - top, column - left]
            canvas[row, column] = max(canvas[row, column], level)
