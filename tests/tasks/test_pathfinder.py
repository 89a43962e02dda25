"""Pathfinder: statistics of its images, the meaning of its classes, and reproducibility."""

import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tasks.lra.pathfinder import BLOCK, Drawing, Pathfinder

pytestmark = pytest.mark.slow  # numba compiles the kernels for ten to twenty seconds

SMALL = {"train": 150, "dev": 20, "test": 10}


@pytest.fixture(scope="module")
def drawings() -> list[Drawing]:
    task = Pathfinder()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(task.draw, range(1000)))


def test_a_thousand_images_have_the_statistics_of_the_original(drawings):
    pixels = np.stack([drawing.pixels for drawing in drawings])
    targets = np.array([drawing.target for drawing in drawings])
    # Mean 20 of 255, 15 % of pixels over 25, and the full range of levels.
    assert pixels.mean() == pytest.approx(20, abs=1)
    assert (pixels > 25).mean() == pytest.approx(0.15, abs=0.01)
    assert (pixels.min(axis=(1, 2)) == 0).all() and (pixels.max(axis=(1, 2)) == 255).all()
    # 323 attempts; 275 with sines rounded to 12 decimals. The standard deviation is 320.
    assert np.mean([drawing.attempts for drawing in drawings]) == pytest.approx(323, abs=24)
    # Classes are balanced, by four standard deviations, and the brightness does not tell them.
    assert targets.mean() == pytest.approx(0.5, abs=0.064)
    means = pixels.mean(axis=(1, 2))
    difference = abs(means[targets == 1].mean() - means[targets == 0].mean())
    assert difference < 4 * means.std() * 2 / 1000**0.5
    # The first snake starts equally often at thirty angles, by five standard deviations.
    angles = Counter(int(drawing.paddles[0, 2]) - 180 for drawing in drawings)
    assert set(angles) == {*range(-150, -120)}
    assert max(angles.values()) < 1000 / 30 + 5 * (1000 / 30) ** 0.5
    # About one distractor of five is drawn.
    counts = [(len(drawing.paddles) - 28) / 4 for drawing in drawings]
    assert set(counts) <= {0, 1, 2, 3, 4, 5} and np.mean(counts) == pytest.approx(1.2, abs=0.15)
    # The first disc is on either snake in either class.
    cases = [(d.target, bool((d.discs[0] == d.paddles[0, :2]).all())) for d in drawings]
    assert min(Counter(cases).values()) > 190 and len({*cases}) == 4


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


def test_the_gap_between_paddles_is_drawn_at_128_pixels():
    task = Pathfinder(size=128, contour=6)
    assert {task.draw(index).margin for index in range(12)} == {2, 3}


def test_images_are_in_their_order_in_raster_order():
    task = Pathfinder(**SMALL)
    drawings = [task.draw(index) for index in (0, 149, 150, 170)]
    splits = {name: task.load(name) for name in ("train", "dev", "test")}
    rows = [("train", 0), ("train", 149), ("dev", 0), ("test", 0)]
    for drawing, (name, row) in zip(drawings, rows, strict=True):
        assert splits[name].sequences[row].tolist() == drawing.pixels.ravel().tolist()
        assert splits[name].targets[row] == drawing.target


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


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_a_failed_image_ends_the_generation_at_once(home, monkeypatch, error):
    indices, ended, shutdown = [], threading.Event(), ThreadPoolExecutor.shutdown

    def draw(task, index, attempt=0):
        indices.append(index)
        if index > 0:  # the first one fails while the next ones are drawn
            ended.wait()
        raise error

    def end(pool, wait=True, *, cancel_futures=False):
        shutdown(pool, wait=False, cancel_futures=cancel_futures)
        ended.set()
        shutdown(pool, wait=wait)

    monkeypatch.setattr(Pathfinder, "draw", draw)
    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", end)
    with pytest.raises(error):
        Pathfinder(train=100 * BLOCK, dev=1, test=1).load("train")
    assert len(indices) <= (os.cpu_count() or 1) + 1
    assert not list(home.glob("*.npz"))
