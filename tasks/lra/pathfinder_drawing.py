"""One image of Pathfinder, compiled by numba: two snakes, distractors, two discs.

The rules are from Linsley et al., 2018, arXiv 1805.08315, and their published generator at
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
from jaxtyping import Float64, Int64, UInt8
from numba import njit
from numpy.random import Generator

from tasks.lra.pathfinder_tables import ANGLES, BORDER, FULL, Tables

Canvas: TypeAlias = Float64[np.ndarray, "h h"]
Levels: TypeAlias = UInt8[np.ndarray, "h h"]
Patch: TypeAlias = UInt8[np.ndarray, "w w"]
Paddles: TypeAlias = Int64[np.ndarray, "p 3"]
Pixels: TypeAlias = Int64[np.ndarray, "k 2"]
Paddle: TypeAlias = Int64[np.ndarray, " 3"]
Point: TypeAlias = Int64[np.ndarray, " 2"]
Vector: TypeAlias = Float64[np.ndarray, " 2"]
Weights: TypeAlias = Float64[np.ndarray, " j"]

DISTRACTOR_ATTEMPTS = 5

MIN_FREE = 0.01  # The share of free pixels below which no distractor is started
MAX_FREE = 76  # The highest level of the mask that counts as free: 0.3 of 255
COLLISION = 459  # The sum of two masks from which on they collide: 1.8 times 255
ATTEMPTS = 3  # The most attempts to place a first paddle, or a head
MIN_WEIGHT = 1e-4 * FULL  # The sum of weights below which a snake cannot grow


# Compiled in each process that generates: an on-disk cache of machine code needs a writable folder
# next to the package, and importing this module would fail without one.
@njit(nogil=True)
def draw(
    rng: Generator, tables: Tables, image: Levels, paddles: Paddles, discs: Pixels
) -> tuple[int, int]:
    # Return the class (1 where both discs are on one snake) and the number of paddles. `image`
    # receives the pixels, `discs` the centres (y, x) of both discs, and `paddles` (y, x, direction)
    # of each paddle, its tail where the direction is an integer angle, its head where not: the
    # first snake's, the second's, and then the distractors'.
    label = int(2 * rng.random())
    mask = np.empty((tables.size, tables.size), np.uint8)
    while not grow_pair(rng, tables, mask, paddles):
        pass
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
    return label, count


@njit(nogil=True)
def grow_pair(rng: Generator, tables: Tables, mask: Levels, paddles: Paddles) -> bool:
    # `mask` is overwritten.
    band = 2 * tables.tail_distance
    mask[:] = FULL
    mask[band:-band, band:-band] = 0
    pivots = np.empty((2, 2), np.int64)
    first, second = paddles[: tables.contour], paddles[tables.contour : 2 * tables.contour]
    if not seed(rng, tables, mask, first[0], pivots[0]):
        return False
    mask[BORDER:-BORDER, BORDER:-BORDER] = 0
    if not seed_second(rng, tables, first[0], second[0], pivots[1]):
        return False
    for joint in range(1, tables.contour):
        for snake, pivot in ((first, pivots[0]), (second, pivots[1])):
            if not extend(rng, tables, mask, snake[joint - 1], snake[joint], pivot):
                return False
    put(mask, tables.masks[second[-1, 2]], second[-1, 0], second[-1, 1], 1)
    return True


@njit(nogil=True)
def scatter(rng: Generator, tables: Tables, mask: Levels, paddles: Paddles) -> bool:
    # On success the distractor is added to `mask`.
    pivot = np.empty(2, np.int64)
    for _ in range(DISTRACTOR_ATTEMPTS):
        if (mask <= MAX_FREE).sum() < MIN_FREE * mask.size:
            return False
        trial = mask.copy()
        grown = 1 if seed(rng, tables, trial, paddles[0], pivot) else 0
        while 0 < grown < tables.distractor_contour:
            extended = extend(rng, tables, trial, paddles[grown - 1], paddles[grown], pivot)
            grown = grown + 1 if extended else 0
        if grown:
            last = paddles[grown - 1]
            put(trial, tables.masks[last[2]], last[0], last[1], 1)
            # Compiling `mask[:] = trial` takes seconds.
            for y in range(tables.size):
                for x in range(tables.size):
                    mask[y, x] = trial[y, x]
            return True
    return False


# Inner loops take single arrays: passing all tables costs more than the loops.
@njit(nogil=True)
def seed(rng: Generator, tables: Tables, mask: Levels, paddle: Paddle, pivot: Point) -> bool:
    # The paddle is written to `paddle` and `pivot`, here and below; both are undefined on failure.
    free = np.empty((mask.size, 2), np.int64)
    for _ in range(ATTEMPTS):
        angle = int(ANGLES * rng.random())
        offsets = tables.fits[angle, : tables.fit_counts[angle]]
        if len(offsets) == 0:
            return False
        count = find_free(mask, offsets, free)
        if count == 0:
            return False
        chosen = int(count * rng.random())
        paddle[0], paddle[1], paddle[2] = free[chosen, 0], free[chosen, 1], angle
        if begin(tables.size, tables.onset[angle], tables.joints[angle], paddle, pivot):
            return True
    return False


@njit(nogil=True)
def find_free(mask: Levels, offsets: Pixels, free: Pixels) -> int:
    # The pixels from which all offsets lead to free ones or outside.
    size = len(mask)
    count = 0
    for y in range(size):
        for x in range(size):
            for i in range(len(offsets)):
                row, column = y + offsets[i, 0], x + offsets[i, 1]
                if inside(size, row, column) and mask[row, column] > MAX_FREE:
                    break
            else:
                free[count, 0], free[count, 1] = y, x
                count += 1
    return count


@njit(nogil=True)
def inside(size: int, y: int, x: int) -> bool:
    return 0 <= y < size and 0 <= x < size


@njit(nogil=True)
def begin(size: int, onset: Vector, joint: Vector, paddle: Paddle, pivot: Point) -> bool:
    # True if the pivot and the head are in the window.
    y, x = step(paddle[0], onset[0]), step(paddle[1], onset[1])
    pivot[0], pivot[1] = step(y, joint[0]), step(x, joint[1])
    return inside(size, y, x) and inside(size, pivot[0], pivot[1])


@njit(nogil=True)
def step(coordinate: int, distance: float) -> int:
    # The ceiling of the sum in double precision.
    return int(np.ceil(coordinate + distance))


@njit(nogil=True)
def seed_second(
    rng: Generator, tables: Tables, other: Paddle, paddle: Paddle, pivot: Point
) -> bool:
    for _ in range(ATTEMPTS):
        bearing = int(ANGLES * rng.random())
        # Halves are rounded to even, as in NumPy.
        paddle[0] = int(np.rint(other[0] + tables.tail_distance * tables.compass[bearing, 0]))
        paddle[1] = int(np.rint(other[1] + tables.tail_distance * tables.compass[bearing, 1]))
        paddle[2] = int(ANGLES * rng.random())
        if begin(tables.size, tables.onset[paddle[2]], tables.joints[paddle[2]], paddle, pivot):
            return True
    return False


@njit(nogil=True)
def extend(
    rng: Generator, tables: Tables, mask: Levels, last: Paddle, paddle: Paddle, pivot: Point
) -> bool:
    pivot[0] = step(pivot[0], tables.pivots[last[2], 0])
    pivot[1] = step(pivot[1], tables.pivots[last[2], 1])
    weights = np.empty(len(tables.heads))
    total = weigh(mask, tables.near, tables.heads, pivot, tables.turns[last[2]], weights)
    if total < MIN_WEIGHT:
        return False
    for _ in range(ATTEMPTS):
        chosen = np.searchsorted(weights.cumsum(), total * rng.random(), side="right")
        paddle[0] = pivot[0] + tables.heads[chosen, 0]
        paddle[1] = pivot[1] + tables.heads[chosen, 1]
        paddle[2] = ANGLES + chosen
        if not collides(mask, tables.masks[paddle[2]], paddle):
            put(mask, tables.masks[last[2]], last[0], last[1], 1)
            return True
    return False


@njit(nogil=True)
def weigh(
    mask: Levels, near: Pixels, heads: Pixels, pivot: Point, turns: Weights, weights: Weights
) -> float:
    # 0 outside the window.
    size = len(mask)
    total = 0.0
    for head in range(len(heads)):
        weights[head] = 0.0
        y, x = pivot[0] + heads[head, 0], pivot[1] + heads[head, 1]
        if turns[head] > 0.0 and inside(size, y, x):
            covered = 0
            for i in range(len(near)):
                row, column = y + near[i, 0], x + near[i, 1]
                if inside(size, row, column):
                    covered = max(covered, int(mask[row, column]))
            weights[head] = (FULL - covered) * turns[head]
            total += weights[head]
    return total


@njit(nogil=True)
def collides(mask: Levels, patch: Patch, paddle: Paddle) -> bool:
    size, half = len(mask), len(patch) // 2
    y, x = paddle[0], paddle[1]
    for row in range(max(y - half, 0), min(y + half + 1, size)):
        for column in range(max(x - half, 0), min(x + half + 1, size)):
            added = int(patch[row - y + half, column - x + half])
            if added + int(mask[row, column]) >= COLLISION:
                return True
    return False


@njit(nogil=True)
def render(tables: Tables, paddles: Paddles, discs: Pixels, image: Levels) -> None:
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
    # By maximum, clipped to the window.
    size, half = len(levels), len(patch) // 2
    for row in range(max(y - half, 0), min(y + half + 1, size)):
        for column in range(max(x - half, 0), min(x + half + 1, size)):
            level = contrast * patch[row - y + half, column - x + half]
            if level > levels[row, column]:
                levels[row, column] = level
