"""The tables of Pathfinder: what depends on a direction, a turn or an end only, precomputed.

An image has few directions: an integer angle for the first paddle of a snake, and for the others
the direction from a joint to one of the pixels on a circle around it. Points and vectors are
(y, x); `step(c, angle, d) = ceil(c + d (sin angle, cos angle))`.

A paddle is drawn with Pillow at twice the size as a line of length 2L, and halved with its Lanczos
filter; its mask is the line dilated by a disc of radius 2m, halved in the same way. Both are 8-bit
images.

Vectors are doubles, added to a point when it is known, and the sines of the integer angles, and of
the reversed ones, are in `pathfinder_sines.csv`, correctly rounded: see
docs/decisions/data.md.
"""

from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import ceil, pi
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64, UInt8
from scipy.ndimage import binary_dilation

from tasks.data.extras import import_extra

OVERSAMPLING = 2  # Pixels of a canvas to one of the window
LANCZOS = 3  # Pixels of the window on either side that the filter reads
BORDER = 1  # Pixels on every side of the window that the mask covers from the start
FULL = 255  # The level of a completely covered pixel
ANGLES = 360  # Directions below are integer angles, from -180 degrees; the others lead to a head


@dataclass(frozen=True, kw_only=True)
class Scale:
    # The parameters of one window size; lengths are in pixels.
    paddle: int  # Length L of a paddle
    thickness: float
    margins: tuple[int, ...]  # Gaps m between paddles; one is drawn for each image
    tail_distance: int  # Between the two tails
    radius: float  # Of a disc
    continuity: float  # Factor of a turn in its weight: a larger one makes snakes straighter
    contrast: float  # Level of the two snakes; a disc has 1
    clutter: float  # Level of the distractors
    distractors: int  # Number of their paddles, rounded down to whole distractors


# The parameters by side of the window.
SCALES = {
    32: Scale(
        paddle=2, thickness=0.5, margins=(1,), tail_distance=7, radius=1.5,
        continuity=1.0, contrast=1.5, clutter=2.0, distractors=20,
    ),
    64: Scale(
        paddle=5, thickness=1.0, margins=(1,), tail_distance=12, radius=2.5,
        continuity=1.8, contrast=0.8, clutter=0.8, distractors=22,
    ),
    128: Scale(
        paddle=5, thickness=1.5, margins=(2, 3), tail_distance=20, radius=3.0,
        continuity=1.8, contrast=0.9, clutter=0.9, distractors=35,
    ),
}  # fmt: skip


class Tables(NamedTuple):
    # The tables of one size, contour length and gap. Axis letters: `r` directions, `a` integer
    # angles, `j` heads, `w` pixels of a paddle's patch, `o` pixels of a disc's, `c` pixels of a
    # neighbourhood, `k` pixels at most.
    size: int
    contour: int
    distractor_contour: int
    distractors: int
    tail_distance: int
    contrast: float
    clutter: float
    compass: Float64[np.ndarray, "a 2"]  # (sin, cos) of each integer angle
    heads: Int64[np.ndarray, "j 2"]  # Possible positions of a head, from its pivot
    lines: UInt8[np.ndarray, "r w w"]  # A paddle's image; an angle's tail, or a head, is the centre
    masks: UInt8[np.ndarray, "r w w"]
    fits: Int64[np.ndarray, "a k 2"]  # Pixels around a tail that must be free
    fit_counts: Int64[np.ndarray, " a"]  # Rows of `fits` that are in use
    onset: Float64[np.ndarray, "a 2"]  # From a tail to the head, before the ceiling, as below
    joints: Float64[np.ndarray, "a 2"]  # From that head to the pivot
    pivots: Float64[np.ndarray, "r 2"]  # From a pivot to the next one
    turns: Float64[np.ndarray, "r j"]  # Weight of each head after each direction
    near: Int64[np.ndarray, "c 2"]  # The neighbourhood of a head that should be free
    discs: UInt8[np.ndarray, "o o o o"]  # A disc at each position of a small window


@cache
def drawing_tables(size: int, contour: int, margin: int, distractors: bool = True) -> Tables:
    import_extra("pathfinder", "PIL.ImageDraw", "vision")
    scale = SCALES[size]
    compass, reversed_compass = sines()
    heads = circle(scale.paddle + margin)
    toward = _unit(np.arctan2(*heads.T))
    # A paddle is drawn forward from its tail, or backward from its head toward the pivot.
    canvases = [_line(scale, margin, vector) for vector in np.concatenate([compass, -toward])]
    around = _disc(OVERSAMPLING * margin)
    dilated = [binary_dilation(canvas > 0, around).astype(np.uint8) for canvas in canvases]
    masks = np.stack([_halved(FULL * canvas) for canvas in dilated])
    fits = [_fit(mask, scale.paddle + margin) for mask in masks[:ANGLES]]
    longest = max(map(len, fits))
    growth = np.concatenate([compass, toward])
    turn = np.abs(np.arctan2(*growth.T)[:, None] - np.arctan2(*toward.T))
    turn = np.minimum(np.minimum(turn, 2 * pi - turn) * scale.continuity, pi / 2)
    distractor_contour = contour // 3
    return Tables(
        size=size, contour=contour, distractor_contour=distractor_contour,
        distractors=scale.distractors // distractor_contour if distractors else 0,
        tail_distance=scale.tail_distance, contrast=scale.contrast, clutter=scale.clutter,
        compass=compass, heads=heads, lines=np.stack([_halved(canvas) for canvas in canvases]),
        masks=masks, fit_counts=np.array([len(offsets) for offsets in fits]),
        fits=np.stack([np.pad(row, ((0, longest - len(row)), (0, 0))) for row in fits]),
        onset=scale.paddle * compass, joints=(scale.paddle + margin) * reversed_compass,
        pivots=(scale.paddle + 2 * margin) * growth,
        turns=np.cos(turn).round(12) ** 2,
        near=np.argwhere(_disc(margin)) - margin, discs=_discs(scale.radius),
    )  # fmt: skip


def sines() -> tuple[Float64[np.ndarray, "a 2"], Float64[np.ndarray, "a 2"]]:
    # (sin, cos) of each integer angle, and of its reverse.
    text = resources.files("tasks.lra").joinpath("pathfinder_sines.csv").read_text("utf-8")
    table = np.loadtxt(text.splitlines(), delimiter=",", skiprows=1)
    return table[:, 1:3], table[:, 3:5]


def circle(radius: int) -> Int64[np.ndarray, "j 2"]:
    # In order: points 1 pixel of arc apart, floored.
    points = np.floor(radius * _unit(np.arange(0, 2 * pi, 1 / radius)))
    return np.unique(points.astype(np.int64), axis=0)


def _unit(angles: Float64[np.ndarray, " r"]) -> Float64[np.ndarray, "r 2"]:
    return np.stack([np.sin(angles), np.cos(angles)], axis=1)


def _line(scale: Scale, margin: int, vector: Float64[np.ndarray, " 2"]) -> UInt8[np.ndarray, "w w"]:
    from PIL import Image, ImageDraw

    centre = OVERSAMPLING * (scale.paddle + ceil(scale.thickness) + margin)
    y, x = np.ceil(centre + OVERSAMPLING * scale.paddle * vector).astype(int).tolist()
    canvas = Image.new("L", (2 * centre + 1, 2 * centre + 1))
    width = int(OVERSAMPLING * scale.thickness)
    ImageDraw.Draw(canvas).line([(centre, centre), (x, y)], fill=FULL, width=width)
    return np.array(canvas)


def _disc(radius: int) -> Bool[np.ndarray, "w w"]:
    y, x = np.ogrid[-radius : radius + 1, -radius : radius + 1]
    return y**2 + x**2 <= radius**2


def _halved(canvas: UInt8[np.ndarray, "_ _"]) -> UInt8[np.ndarray, "w w"]:
    from PIL import Image

    # The canvas of a paddle has an odd side, 2 w - 1: its centre is the patch's centre.
    side = (len(canvas) + 1) // OVERSAMPLING
    return np.array(Image.fromarray(canvas).resize((side, side), Image.Resampling.LANCZOS))


def _fit(mask: UInt8[np.ndarray, "w w"], reach: int) -> Int64[np.ndarray, "k 2"]:
    # The kernel of the original has this reach, and contains the mask one pixel off its centre. If
    # it is outside a corner of the window, the dilation is minus infinity, as a mask without a free
    # pixel: at 32 pixels few angles start a snake.
    offsets = np.argwhere(mask == FULL) - len(mask) // 2 + 1
    offsets = offsets[(np.abs(offsets) <= reach).all(axis=1)]
    corners = ((-1, -1), (-1, 1), (1, -1), (1, 1))
    inside_corners = all((offsets * corner <= 0).all(axis=1).any() for corner in corners)
    return offsets if inside_corners else offsets[:0]


def _discs(radius: float) -> UInt8[np.ndarray, "o o o o"]:
    # At the border of a window the filter reads fewer pixels, which changes a disc near it.
    side = 2 * (ceil(radius) + 2 * LANCZOS) + 1
    y, x = np.ogrid[: OVERSAMPLING * side, : OVERSAMPLING * side]
    discs = np.empty((side, side, side, side), np.uint8)
    for i in range(side):
        for j in range(side):
            distance = (y - OVERSAMPLING * i) ** 2 + (x - OVERSAMPLING * j) ** 2
            inside = distance <= (OVERSAMPLING * radius) ** 2
            discs[i, j] = _halved(FULL * inside.astype(np.uint8))
    return discs
