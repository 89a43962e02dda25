"""Decisions of a store: the first one holds."""

import json
import os

import pytest

from harness.reference import FILE, choose, key_of

CHOICES = ("a", "b")


def test_the_first_decision_holds_and_nothing_is_tried_again(store):
    assert choose(store, "x", CHOICES, lambda: None) is None and not store.folder.exists()
    assert choose(store, "x", CHOICES, lambda: "a") == "a"
    assert choose(store, "y", CHOICES, lambda: "b") == "b"
    assert choose(store, "x", CHOICES, lambda: pytest.fail("tried again")) == "a"
    assert store.read() == ([], [])


def test_of_two_processes_that_try_at_once_the_first_decides(store):
    # The other process decides while this one tries.
    found = choose(store, "x", CHOICES, lambda: (choose(store, "x", CHOICES, lambda: "b"), "a")[1])
    assert found == "b"


@pytest.mark.parametrize("content", ["", "[1]", "[" * 5000, '{"x": 3}', '{"x": "c"}', "\x00"])
def test_a_damaged_file_is_decided_again(store, content):
    store.require_writable()
    (store.folder / FILE).write_text(content)
    assert choose(store, "x", CHOICES, lambda: "a") == "a"
    assert json.loads((store.folder / FILE).read_text())["x"] == "a"


def test_a_named_pipe_is_decided_again(store):
    store.require_writable()
    os.mkfifo(store.folder / FILE)
    assert choose(store, "x", CHOICES, lambda: "a") == "a"
    assert json.loads((store.folder / FILE).read_text())["x"] == "a"


def test_keys_are_equal_for_equal_parts_alone():
    assert key_of("a", {"x": 1, "y": (2,)}) == key_of("a", {"y": [2], "x": 1})
    keys = [key_of("a", 1), key_of("b", 1), key_of("a", 2)]
    assert len({*keys}) == 3
