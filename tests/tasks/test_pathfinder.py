"""Pathfinder: its discs and its classes. `DIGESTS` of test_synthetic.py fixes its images."""

import numpy as np
import pytest

from tasks.lra.pathfinder import Pathfinder

pytestmark = pytest.mark.slow  # numba compiles the kernels for ten to twenty seconds


def test_both_discs_are_visible_and_the_class_is_whether_they_are_on_one_snake():
    undetermined = 0
    for drawing in map(Pathfinder().draw, range(100)):
        levels = np.pad(drawing.pixels, 2).astype(int)
        for y, x in drawing.discs:
            # Two by two bright pixels: a paddle has no such square.
            assert levels[y + 1 : y + 3, x + 1 : x + 3].min() > 150
        snakes = drawing.paddles[:28].reshape(2, 14, 3)[:, :, :2].tolist()
        tails, heads = [snake[0] for snake in snakes], [snake[-1] for snake in snakes]
        origin, terminal = drawing.discs.tolist()
        assert origin in tails and terminal in heads
        if heads[0] == heads[1]:
            undetermined += 1
        else:
            assert drawing.target == (tails.index(origin) == heads.index(terminal))
    assert undetermined <= 5


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
