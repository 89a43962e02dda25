"""Finds room for labels in a crowded plot: plain geometry, in pixels."""

from collections.abc import Iterable, Iterator, Sequence
from math import cos, hypot, pi, sin
from typing import NamedTuple


class Box(NamedTuple):
    """An upright rectangle."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: "Box") -> float:
        """Area that both cover."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(0.0, width) * max(0.0, height)

    def outside(self, frame: "Box") -> float:
        """Area that is not within `frame`."""
        return (self.right - self.left) * (self.top - self.bottom) - self.overlap(frame)

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """The point of the rectangle that is closest to (x, y)."""
        return min(max(x, self.left), self.right), min(max(y, self.bottom), self.top)


class Disc(NamedTuple):
    """A filled circle."""

    x: float
    y: float
    radius: float

    def overlap(self, box: Box) -> float:
        """How far the box reaches into the disc, times its height: 0 where they are apart."""
        near_x, near_y = box.nearest(self.x, self.y)
        depth = self.radius - hypot(near_x - self.x, near_y - self.y)
        return max(0.0, depth) * (box.top - box.bottom)


class Scene(NamedTuple):
    """What a label must stay within, and what it must keep off."""

    frame: Box
    discs: Sequence[Disc]
    boxes: Sequence[Box]

    def conflict(self, box: Box) -> float:
        """0 where the box has its place for itself; else, roughly, the area in dispute."""
        discs = sum(disc.overlap(box) for disc in self.discs)
        return discs + sum(other.overlap(box) for other in self.boxes) + box.outside(self.frame)


def choose(candidates: Iterable[Box], scene: Scene) -> Box:
    """The first candidate in conflict with nothing, or the one in least conflict.

    Raises:
        ValueError: there are no candidates.
    """
    best, least = None, float("inf")
    for box in candidates:
        conflict = scene.conflict(box)
        if conflict == 0:
            return box
        if conflict < least:
            best, least = box, conflict
    if best is None:
        raise ValueError("no candidates to choose from; give one at least")
    return best


def around(disc: Disc, width: float, height: float, gap: float) -> Iterator[Box]:
    """Places for a label round a disc, the nearest first: beside, above, below, then between."""
    for ring in range(12):
        reach = disc.radius + gap * (1 + ring)
        for eighth in (0, 4, 2, 6, 1, 3, 7, 5):
            angle = eighth * pi / 4
            x = disc.x + (reach + width / 2) * cos(angle)
            y = disc.y + (reach + height / 2) * sin(angle)
            yield Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
