"""One drawing of Pathfinder, compiled by numba: two snakes, distractors, two discs.

The rules are those of Linsley et al., 2018, arXiv 1805.08315, and of their published generator at
the sizes of the Long Range Arena (Tay et al., 2021, arXiv 2011.04006). Levels of images and masks
lie in 0..255 and combine by maximum; a pixel is free where the mask is at most 0.3 of that.

* The mask begins with the window's border taken. The tail of the first snake is a random pixel
  round which the mask of a paddle at a random integer angle is free, a band of twice the tails'
  distance being taken on every side; the second tail lies at that distance from it, and need not be
  free. Heads and pivots lie inside the window.
* The snakes take turns to grow. The next pivot lies straight ahead; a head is drawn from the pixels
  on a circle round it, by (1 - mask dilated by a disc of radius m) * cos(turn)^2, and refused where
  its paddle's mask and the mask add up to 1.8 or more. The mask then takes the paddle before: a
  snake does not collide with its newest joint. A pair that cannot grow is begun again.
* Distractors are seeded anywhere, and grow alike. The mask that they meet lacks the first snake's
  last paddle, as in the original.
* Discs lie on the tail of one snake, and on the last head of the same (class 1) or of the other.

All randomness comes through `Generator.random`, whose stream NumPy keeps; integers are made of it
here.
"""

import numpy as np
from jaxtyping import Float64, Int64, UInt8
from numba import njit

from tasks.lra.paddles import TAKEN, cover, extend, inside, seed, seed_beside
from tasks.lra.stencils import FULL, Stencils

SEEDINGS = 5
"""Tries at a distractor."""

SCARCE = 0.01
"""The share of free pixels below which no distractor is seeded."""


# Compiled anew in each process that generates: an on-disk cache of machine code needs a writable
# folder beside the package, and importing this module would fail without one.
@njit(nogil=True)
def draw(
    rng: np.random.Generator,
    kit: Stencils,
    image: UInt8[np.ndarray, "h h"],
    paddles: Int64[np.ndarray, "p 3"],
    discs: Int64[np.ndarray, "2 2"],
) -> tuple[int, int, int]:
    """Draw one image and say how it was made.

    Args:
        rng: the source of randomness.
        kit: the stencils.
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
    mask = np.empty((kit.size, kit.size), np.uint8)
    attempts = 1
    while not grow_pair(rng, kit, mask, paddles):
        attempts += 1
    drawn = 2 * kit.contour
    for _ in range(kit.distractors):
        if scatter(rng, kit, mask, paddles[drawn:]):
            drawn += kit.shorter
    origin = int(2 * rng.random())
    terminal = origin if label == 1 else 1 - origin
    ends = (paddles[origin * kit.contour], paddles[(terminal + 1) * kit.contour - 1])
    for end in range(2):
        discs[end, 0], discs[end, 1] = ends[end][0], ends[end][1]
    render(kit, paddles[:drawn], discs, image)
    return label, drawn, attempts


@njit(nogil=True)
def grow_pair(
    rng: np.random.Generator,
    kit: Stencils,
    mask: UInt8[np.ndarray, "h h"],
    paddles: Int64[np.ndarray, "p 3"],
) -> bool:
    """Try once to draw the two snakes; `mask` is made anew."""
    for y in range(kit.size):
        for x in range(kit.size):
            mask[y, x] = 0 if inside(kit.size, kit.border, y, x) else FULL
    pivots = np.empty((2, 2), np.int64)
    first, second = paddles[: kit.contour], paddles[kit.contour : 2 * kit.contour]
    if not seed(rng, kit, mask, True, first[0], pivots[0]):
        return False
    if not seed_beside(rng, kit, first[0], second[0], pivots[1]):
        return False
    for joint in range(1, kit.contour):
        if not extend(rng, kit, mask, first[joint - 1], first[joint], pivots[0]):
            return False
        if not extend(rng, kit, mask, second[joint - 1], second[joint], pivots[1]):
            return False
    cover(mask, kit.masks[second[-1, 2]], second[-1])
    return True


@njit(nogil=True)
def scatter(
    rng: np.random.Generator,
    kit: Stencils,
    mask: UInt8[np.ndarray, "h h"],
    paddles: Int64[np.ndarray, "p 3"],
) -> bool:
    """Try a few times to draw one distractor; only then `mask` takes it."""
    pivot = np.empty(2, np.int64)
    for _ in range(SEEDINGS):
        free = 0
        for level in mask.flat:
            free += level <= TAKEN
        if free < SCARCE * mask.size:
            return False
        trial = mask.copy()
        found = seed(rng, kit, trial, False, paddles[0], pivot)
        if found and grow(rng, kit, trial, paddles, pivot):
            for y in range(kit.size):
                for x in range(kit.size):
                    mask[y, x] = trial[y, x]
            return True
    return False


@njit(nogil=True)
def grow(
    rng: np.random.Generator,
    kit: Stencils,
    mask: UInt8[np.ndarray, "h h"],
    paddles: Int64[np.ndarray, "p 3"],
    pivot: Int64[np.ndarray, " 2"],
) -> bool:
    """Try to draw a distractor behind its first paddle, whose pivot is given."""
    for joint in range(1, kit.shorter):
        if not extend(rng, kit, mask, paddles[joint - 1], paddles[joint], pivot):
            return False
    last = paddles[kit.shorter - 1]
    cover(mask, kit.masks[last[2]], last)
    return True


@njit(nogil=True)
def render(
    kit: Stencils,
    paddles: Int64[np.ndarray, "p 3"],
    discs: Int64[np.ndarray, "2 2"],
    image: UInt8[np.ndarray, "h h"],
) -> None:
    """Draw paddles and discs, and scale the darkest pixel to 0 and the brightest to 255."""
    canvas = np.zeros((kit.size, kit.size))
    for number in range(len(paddles)):
        y, x, direction = paddles[number]
        contrast = kit.contrast if number < 2 * kit.contour else kit.clutter
        half = kit.lines.shape[1] // 2
        put(canvas, kit.lines[direction], y - half, x - half, contrast)
    side = len(kit.discs)
    for end in range(2):
        # Away from the border every disc is the same one: that in the middle of the small window.
        y, x = discs[end]
        top = min(max(y - side // 2, 0), kit.size - side)
        left = min(max(x - side // 2, 0), kit.size - side)
        put(canvas, kit.discs[y - top, x - left], top, left, 1.0)
    lowest, highest = np.inf, 0.0
    for level in canvas.flat:
        lowest, highest = min(lowest, level), max(highest, level)
    scale = FULL / (highest - lowest)
    for y in range(kit.size):
        for x in range(kit.size):
            # What is cast is cut off: half a level on top rounds it.
            image[y, x] = np.uint8((canvas[y, x] - lowest) * scale + 0.5)


@njit(nogil=True)
def put(
    canvas: Float64[np.ndarray, "h h"],
    stencil: UInt8[np.ndarray, "w w"],
    top: int,
    left: int,
    contrast: float,
) -> None:
    """Put a stencil on an image, by maximum, clipped to the window."""
    size = len(canvas)
    for row in range(max(top, 0), min(top + len(stencil), size)):
        for column in range(max(left, 0), min(left + len(stencil), size)):
            level = contrast * stencil[row - top, column - left]
            canvas[row, column] = max(canvas[row, column], level)
