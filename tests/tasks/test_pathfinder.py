"""Pathfinder: its classes, and its images against its rules in plain Python with Pillow."""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from PIL import Image, ImageDraw

from tasks.lra.pathfinder import Drawing, Pathfinder
from tasks.lra.pathfinder_tables import ANGLES, SCALES, sines

pytestmark = pytest.mark.slow  # numba compiles the kernels for ten to twenty seconds

SMALL = {"train": 150, "dev": 20, "test": 10}


@pytest.fixture(scope="module")
def drawings() -> list[Drawing]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(Pathfinder().draw, range(1000)))


def test_both_discs_are_visible_at_their_positions(drawings):
    for drawing in drawings:
        levels = np.pad(drawing.pixels, 2).astype(int)
        for y, x in drawing.discs:
            # Two by two bright pixels: a paddle has no such square.
            assert levels[y + 1 : y + 3, x + 1 : x + 3].min() > 150
        assert not (drawing.discs[0] == drawing.discs[1]).all()


def test_the_class_is_whether_both_discs_are_on_one_snake(drawings):
    undetermined = 0
    for drawing in drawings:
        snakes = drawing.paddles[:28].reshape(2, 14, 3)[:, :, :2].tolist()
        tails, heads = [snake[0] for snake in snakes], [snake[-1] for snake in snakes]
        origin, terminal = drawing.discs.tolist()
        assert origin in tails and terminal in heads
        if heads[0] == heads[1]:
            undetermined += 1
        else:
            assert drawing.target == (tails.index(origin) == heads.index(terminal))
    assert undetermined <= 10


def test_a_repeated_image_is_replaced(monkeypatch):
    draw = Pathfinder.draw
    firsts = {6: 2, 9: 5}

    def repeating(task, index, attempt=0):
        return draw(task, index if attempt else firsts.get(index, index), attempt)

    monkeypatch.setattr(Pathfinder, "draw", repeating)
    task = Pathfinder(train=5, dev=3, test=2)
    arrays = task.generate(2)
    assert arrays["train_pixels"][2].tolist() == draw(task, 2).pixels.ravel().tolist()
    assert arrays["dev_pixels"][0].tolist() == draw(task, 5).pixels.ravel().tolist()
    for name, row, index in (("dev", 1, 6), ("test", 1, 9)):
        other = draw(task, index, 1)
        assert arrays[f"{name}_pixels"][row].tolist() == other.pixels.ravel().tolist()
        # The label is the one of this drawing, which by chance the first one could have.
        assert arrays[f"{name}_targets"][row] == other.target != draw(task, firsts[index]).target


CASES = [(32, 14, 0), (32, 14, 1), (32, 9, 2), (32, 6, 3), (64, 9, 4), (128, 6, 5), (128, 6, 6)]


def circle(radius):
    arcs = [k / radius for k in range(math.ceil(2 * math.pi * radius))]
    points = {(math.floor(radius * math.sin(a)), math.floor(radius * math.cos(a))) for a in arcs}
    return sorted(points)


def step(point, angle, distance):
    offset = (distance * math.sin(angle), distance * math.cos(angle))
    return tuple(math.ceil(c + d) for c, d in zip(point, offset, strict=True))


def reverse(angle):
    return angle + math.pi if angle + math.pi < math.pi else angle - math.pi


def disc(radius):
    around = range(-radius, radius + 1)
    return [(y, x) for y in around for x in around if y * y + x * x <= radius * radius]


def halved(canvas):
    side = (len(canvas) + 1) // 2
    small = Image.fromarray(canvas).resize((side, side), Image.Resampling.LANCZOS)
    return np.asarray(small) / 255


class Rules:
    """The rules at one size, in floats of [0, 1] and whole windows."""

    def __init__(self, size, margin):
        self.size, self.margin, self.scale = size, margin, SCALES[size]
        self.length = self.scale.paddle
        self.circle = circle(self.length + margin)

    def angle(self, direction):
        if direction < 360:
            return (direction - 180) * math.pi / 180
        return math.atan2(*self.circle[direction - 360])

    def layers(self, paddle):
        y, x, direction = map(int, paddle)
        along = self.angle(direction)
        along = reverse(along) if direction >= 360 else along
        half = self.length + math.ceil(self.scale.thickness) + self.margin
        canvas = Image.new("L", (4 * half + 1, 4 * half + 1))
        end = step((2 * half, 2 * half), along, 2 * self.length)
        line = [(2 * half, 2 * half), end[::-1]]
        ImageDraw.Draw(canvas).line(line, fill=255, width=round(2 * self.scale.thickness))
        canvas = np.asarray(canvas)
        dilated = np.zeros_like(canvas)
        for dy, dx in disc(2 * self.margin):
            dilated |= np.roll(canvas, (dy, dx), (0, 1))
        patches = []
        for patch in (halved(canvas), halved(dilated)):
            padded = np.zeros((self.size + 2 * half, self.size + 2 * half))
            padded[y : y + 2 * half + 1, x : x + 2 * half + 1] = patch
            patches.append(padded[half:-half, half:-half])
        return patches

    def marker(self, centre):
        y, x = np.ogrid[: 2 * self.size, : 2 * self.size]
        distance = (y - 2 * centre[0]) ** 2 + (x - 2 * centre[1]) ** 2
        return halved(255 * (distance <= (2 * self.scale.radius) ** 2).astype(np.uint8))

    def image(self, drawing, contour):
        level = np.zeros((self.size, self.size))
        for number, paddle in enumerate(drawing.paddles):
            contrast = self.scale.contrast if number < 2 * contour else self.scale.clutter
            level = np.maximum(level, contrast * self.layers(paddle)[0])
        for centre in drawing.discs:
            level = np.maximum(level, self.marker(centre))
        return (level - level.min()) * 255 / (level.max() - level.min())

    def joint(self, last_pivot, last):
        return step(last_pivot, self.angle(int(last[2])), self.length + 2 * self.margin)

    def first_joint(self, paddle):
        tail, angle = tuple(map(int, paddle[:2])), self.angle(int(paddle[2]))
        head = step(tail, angle, self.length)
        return step(head, reverse(angle), self.length + self.margin)

    def dilated(self, mask):
        padded = np.pad(mask, self.margin)
        around = [np.roll(padded, offset, (0, 1)) for offset in disc(self.margin)]
        return np.maximum.reduce(around)[self.margin : -self.margin, self.margin : -self.margin]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "size{}-contour{}-{}".format(*case))
def case(request):
    size, contour, index = request.param
    drawing = Pathfinder(size=size, contour=contour).draw(index)
    rules = Rules(size, drawing.margin)
    grown = drawing.paddles[2 * contour :].reshape(-1, contour // 3, 3)
    return rules, contour, drawing, [*drawing.paddles[: 2 * contour].reshape(2, -1, 3), *grown]


def test_the_image_is_what_pillow_draws_of_the_same_paddles_and_discs(case):
    rules, contour, drawing, _ = case
    # Half a level is rounding; a bit more is the precision of a float.
    assert np.abs(drawing.pixels - rules.image(drawing, contour)).max() <= 0.5 + 1e-9


def test_every_head_is_on_the_circle_around_its_joint_at_less_than_a_right_angle(case):
    rules, _, _, snakes = case
    for snake in snakes:
        pivot = rules.first_joint(snake[0])
        for last, paddle in pairwise(snake):
            pivot = rules.joint(pivot, last)
            offset = (int(paddle[0]) - pivot[0], int(paddle[1]) - pivot[1])
            assert offset == rules.circle[paddle[2] - ANGLES]
            assert abs(math.hypot(*offset) - (rules.length + rules.margin)) < math.sqrt(2)
            turn = abs(rules.angle(int(paddle[2])) - rules.angle(int(last[2])))
            turn = min(turn, 2 * math.pi - turn) * rules.scale.continuity
            assert turn < math.pi / 2
            assert (paddle[:2] >= 0).all() and (paddle[:2] < rules.size).all()


def test_no_paddle_collides_with_others_but_its_newest_joint(case):
    rules, contour, _, snakes = case
    masks = [[rules.layers(paddle)[1] for paddle in snake] for snake in snakes]
    taken = np.pad(np.zeros((rules.size - 2, rules.size - 2)), 1, constant_values=1)
    for joint in range(1, contour):
        for snake in (0, 1):
            taken = grow(rules, taken, snakes[snake], masks[snake], joint)
    taken = np.maximum(taken, masks[1][-1])
    for snake, of_snake in zip(snakes[2:], masks[2:], strict=True):
        for joint in range(1, contour // 3):
            taken = grow(rules, taken, snake, of_snake, joint)
        taken = np.maximum(taken, of_snake[-1])


def grow(rules, taken, snake, masks, joint):
    assert (taken + masks[joint]).max() < 1.8 - 1e-9
    assert rules.dilated(taken)[tuple(snake[joint][:2])] < 1
    return np.maximum(taken, masks[joint - 1])


def test_the_tails_have_their_distance_and_are_inside_the_window(case):
    rules, _, _, snakes = case
    tails = [tuple(map(int, snake[0][:2])) for snake in snakes[:2]]
    assert abs(math.dist(*tails) - rules.scale.tail_distance) <= math.sqrt(0.5)
    band = 2 * rules.scale.tail_distance
    assert all(band - 1 <= c < rules.size - band for c in tails[0])
    for snake in snakes:
        head = step(tuple(snake[0][:2]), rules.angle(int(snake[0][2])), rules.length)
        assert all(0 <= c < rules.size for c in (*head, *rules.first_joint(snake[0])))


def test_the_sines_are_those_of_the_double_angles_correctly_rounded():
    mpmath.mp.prec = 200
    angles = [degrees * math.pi / 180 for degrees in range(-180, 180)]
    for table, radians in zip(sines(), (angles, list(map(reverse, angles))), strict=True):
        exact = [(mpmath.sin(mpmath.mpf(a)), mpmath.cos(mpmath.mpf(a))) for a in radians]
        assert table.tolist() == [[float(sine), float(cosine)] for sine, cosine in exact]
