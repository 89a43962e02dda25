"""WikiText: windows of a text, its splits and its files; Kneser-Ney n-grams by their definition."""

import lzma
from collections import Counter

import numpy as np
import pytest
import torch

import tasks
from tasks.baselines.kneser_ney import cross_entropies, discounts, losses, order_probabilities
from tasks.contract import SPLITS
from tasks.language.wikitext import WikiText, most_frequent, windows
from tests.conftest import one_line
from tests.tasks.conftest import TEST, TRAIN, VALID, article, require_conformance


@pytest.fixture
def imported(official):
    WikiText.import_files(official)


def targets_of(split) -> np.ndarray:
    return split.targets[split.targets >= 0].numpy()


@pytest.mark.parametrize("length", [7, len(TEST), 5000])
def test_every_byte_is_a_target_once_and_its_input_is_the_byte_before(imported, length):
    split = tasks.create("wikitext", max_len=length).load("test")
    assert targets_of(split).astype(np.uint8).tobytes() == TEST
    inputs = split.sequences.flatten()[: len(TEST)].numpy()
    assert inputs[0] == 0 and (inputs[1:] - 1).astype(np.uint8).tobytes() == TEST[:-1]
    at = split.target_positions
    assert at is not None and at.tolist() == [list(range(length))] * len(split)
    assert int((split.targets < 0).sum()) == len(split) * length - len(TEST)


def test_train_and_dev_are_whole_articles_of_valid_or_splits_are_the_published_files(imported):
    def texts(**options) -> list[bytes]:
        task = tasks.create("wikitext", **options)
        return [targets_of(task.load(name)).astype(np.uint8).tobytes() for name in SPLITS]

    train, dev, _ = texts(max_len=16)
    assert (train + dev, dev.decode()) == (VALID, article(11))
    require_conformance("wikitext", splits="official", max_len=64)
    assert texts(splits="official") == [TRAIN, VALID, TEST]


@pytest.mark.parametrize(("level", "n"), [("bytes", 6), ("words", 2)])
def test_the_probe_has_the_ends_of_ngrams_of_the_window_that_train_lacks(level, n, monkeypatch):
    rng = np.random.default_rng(0)
    texts = {name: b" ".join(rng.choice([*b"abcdefghij"], size).astype(np.uint8)[:, None])
             for name, size in (("train", 60), ("test", 600))}  # fmt: skip
    monkeypatch.setattr(WikiText, "text", lambda _, split: np.frombuffer(texts[split], np.uint8))
    options = {"level": level, "max_len": 60}
    whole, train = (tasks.create("wikitext", **options).load(name) for name in ("test", "train"))
    text = targets_of(train).tolist()
    known = {tuple(text[i : i + n]) for i in range(len(text))}
    expected = []
    for inputs, targets in zip(whole.sequences.tolist(), whole.targets.tolist(), strict=True):
        window, hits = [token - 1 for token in inputs] + targets[-1:], []
        for end in range(n, len(window) + 1):
            gram, earlier = tuple(window[end - n : end]), window[: end - 1]
            before = {tuple(earlier[i : i + n]) for i in range(len(earlier) - n + 1)}
            if gram in before - known and targets[end - 2] >= 0:
                hits.append((end - 2, targets[end - 2]))
        expected += [hits] * bool(hits)
    probes = tasks.create("wikitext", **options, test=2).probes()
    assert expected == [
        [(place, target) for place, target in enumerate(row) if target >= 0]
        for row in probes[f"repeated {n}-grams"].targets.tolist()
    ]
    assert len(probes) == 1 and sum(map(len, expected)) > 9


@pytest.mark.parametrize("level", ["bytes", "words"])
def test_the_windows_of_an_article_are_a_cluster(imported, level):
    split = tasks.create("wikitext", level=level, max_len=2).load("test")
    length = len(article(20)) if level == "bytes" else len(article(20).split()) + 9
    # Of three articles.
    assert split.clusters.tolist() == [min(2 * i // length, 2) for i in range(len(split))]


def test_words_that_are_not_in_the_vocabulary_of_train_are_unknown(imported):
    task = tasks.create("wikitext", level="words", words=12, max_len=50)
    vocabulary = [*map(task.class_name, range(task.classes))]
    # Of the words of train, = and <eos> are the most frequent; all others are once in an article.
    assert vocabulary[:3] == ["<unk>", "<eos>", "="]
    words = [vocabulary[target] for target in targets_of(task.load("test"))]
    expected = (" ".join([*line.split(), "<eos>"]) for line in TEST.decode().splitlines())
    assert words == [w if w in vocabulary else "<unk>" for w in " ".join(expected).split()]
    assert "café" not in vocabulary and "A20" not in vocabulary
    # Unknown is in a vocabulary once.
    assert most_frequent(b"a <unk> a <unk>\nb a b c \n", 3) == [b"<unk>", b"a", b"<eos>"]


def test_fewer_windows_are_evenly_spaced(imported):
    full, few = (tasks.create("wikitext", max_len=10, test=n).load("test") for n in (0, 3))
    for name in ("sequences", "targets", "clusters"):
        chosen = [i * len(full) // 3 for i in range(3)]
        assert torch.equal(getattr(few, name), getattr(full, name)[chosen])
    with one_line("wikitext.test=999"):
        tasks.create("wikitext", test=999).load("test")


def test_repacked_files_have_the_same_texts_but_no_train(official, tmp_path):
    folder = tmp_path / "repacked"
    folder.mkdir()
    for name, text in (("valid", VALID), ("test", TEST)):
        empty = text.replace(b"\n \n", b"\n\n").removeprefix(b" ")
        (folder / f"wikitext103_{name}.txt.xz").write_bytes(lzma.compress(empty))
    WikiText.import_files(folder)
    assert targets_of(tasks.create("wikitext").load("test")).astype(np.uint8).tobytes() == TEST
    with one_line("wikitext.splits=official"):
        tasks.create("wikitext", splits="official").load("train")


CLASSES = 6


def by_definition(train: list[int], history: list[int], token: int, order: int) -> float:
    def grams(n: int) -> list[tuple[int, ...]]:
        return [tuple(train[i : i + n]) for i in range(len(train) - n + 1)]

    def probability(n: int, before: tuple[int, ...]) -> float:
        if n == 0:
            return 1 / CLASSES
        counts = Counter(grams(n) if n == order else (gram[1:] for gram in {*grams(n + 1)}))
        lower = probability(n - 1, before[1:])
        following = {gram[-1]: count for gram, count in counts.items() if gram[:-1] == before}
        if not following:
            return lower
        discount = discounts(np.array([*counts.values()]))
        mass = sum(discount[min(count, 3)] for count in following.values())
        count = following.get(token, 0)
        return (max(count - discount[min(count, 3)], 0) + mass * lower) / sum(following.values())

    # At the beginning of a stream there is no longer history.
    usable = min(order - 1, len(history))
    return probability(usable + 1, tuple(history[len(history) - usable :]))


RNG = np.random.default_rng(0)
KNOWN = np.append(RNG.choice(4, 60, p=[0.5, 0.3, 0.15, 0.05]), 4)
OTHER = RNG.choice(CLASSES, 25)
"""Tokens; of the others, one class is only at the end of the first, and one is not there."""


def test_every_probability_is_that_of_the_definition():
    known, tokens = KNOWN.tolist(), OTHER.tolist()
    for order, got in enumerate(order_probabilities(KNOWN, OTHER, CLASSES, 3, (0, 7, 20)), 1):
        for i, token in enumerate(tokens):
            window = tokens[max(start for start in (0, 7, 20) if start <= i) : i]
            expected = by_definition(known, window, token, order)
            assert got[i] == pytest.approx(expected, rel=1e-12), (order, i)
    # Context is the inputs of the window.
    split = windows(OTHER, np.array([0]), 10, CLASSES + 1, "perplexity", np.array([2]))
    (_, mean) = cross_entropies(KNOWN, split, CLASSES, 2)
    expected = [by_definition(known, tokens[19:i], tokens[i], 2) for i in range(20, 25)]
    assert mean == pytest.approx(-np.log(expected).mean())


def test_discounts_are_those_of_chen_and_goodman():
    counts = np.repeat([1, 2, 3, 4, 9], [10, 5, 4, 2, 3])
    y = 10 / (10 + 2 * 5)
    expected = [0, 1 - 2 * y * 5 / 10, 2 - 3 * y * 4 / 5, 3 - 4 * y * 2 / 4]
    assert discounts(counts).tolist() == pytest.approx(expected)
    for numbers in ([10, 5, 1, 20], [10, 0, 4, 2], [3]):  # none is zero or negative
        counts = np.repeat(np.arange(1, len(numbers) + 1), numbers)
        assert discounts(counts).tolist() == [0, 0.5, 1, 1.5]


def test_test_does_not_choose_the_order():
    cycle, noise = np.arange(600) % CLASSES, np.random.default_rng(2).integers(0, CLASSES, 100)
    splits = {
        name: windows(tokens, np.array([0]), 32, CLASSES + 1, "perplexity")
        for name, tokens in (("train", cycle), ("dev", cycle[:100]), ("test", noise))
    }
    on_dev, on_test = (
        int(np.argmin([*cross_entropies(cycle, splits[name], CLASSES)])) + 1
        for name in ("dev", "test")
    )
    assert on_test < on_dev
    assert f"Kneser-Ney {on_dev}-grams" in losses(splits, CLASSES)
