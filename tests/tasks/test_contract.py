"""The contract of every task and of each metric, and examples as text."""

import math
from dataclasses import replace

import pytest
import torch

import tasks as library
from tasks import create, metrics
from tasks.answers import CLASSES, Actions, Classes, NextTokens, Number
from tasks.contract import Split
from tasks.lra.retrieval import Retrieval
from tasks.lra.text import Text
from tasks.metrics import Metric
from tests.conftest import one_line

NAMED = {"listop.seed=0": "listop", "listops.minlen=50": "minlen", "table.seed=0": "path"}
REJECTED = [
    *NAMED, "listops.min_len=x", "copying.max_len=31", "copying.symbols=1", "mqar.max_len=31",
    "induction.max_len=8 specials=4",
    "mqar.vocabulary=7", "mqar.vocabulary=16", "adding.levels=1", "parity.train=0", "parity.dev=0",
    "parity.test=0", "s3.max_len=31", "scaling.vocabulary=32769", "adding.levels=20000",
    "induction.symbols=32768", "mqar.vocabulary=32770", "listops.max_len=501 min_len=500",
    "listops.min_len=-1", "listops.dev=0", "listops.seed=-1", "listops.seed=4294967296",
    "pathfinder.size=33", "pathfinder.contour=7", "pathfinder.train=0",
    "pathfinder.seed=4294967296", "wikitext.max_len=0", "wikitext.words=1", "wikitext.train=-1",
    "uea-japanese-vowels.max_len=0", "text.max_len=0", "retrieval.max_len=0",
    "retrieval.max_len=10001", "image.size=12",
    *(f"recall.mixture={text}" for text in ("", "4", "4/32x", "4/32,", "x", "4/32x2x3")),
]  # fmt: skip


@pytest.mark.parametrize("text", REJECTED)
def test_a_task_that_cannot_be_created_is_one_line(text):
    first, *others = text.split()
    name, _, option = first.partition(".")
    with one_line(NAMED.get(text, option)):
        library.create(name, **dict(text.split("=") for text in (option, *others)))


def test_the_loss_of_half_precision_scores_is_taken_in_single_precision():
    scores = torch.linspace(-3, 3, 15).reshape(5, 3).bfloat16()
    targets = torch.tensor([0, 1, 2, 0, 1])
    loss = CLASSES.loss(scores, targets)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, CLASSES.loss(scores.float(), targets))


def test_padding_and_integer_width_do_not_change_the_digest():
    tokens = torch.tensor([[1, 2, 3], [4, 9, 9]], dtype=torch.uint8)
    split = Split.single(tokens, torch.tensor([3, 1]), torch.arange(2))
    wider = replace(
        split, sequences=torch.tensor([[1, 2, 3, 0], [4, 0, 8, 8]]), targets=split.targets.int(),
        lengths=split.lengths.long(), sequence_ids=split.sequence_ids.long(),
    )  # fmt: skip
    assert wider.digest() == split.digest()


SCORES = {
    "accuracy": (0.25, 25.0, "25.0 %", 1),
    "bits-per-byte": (math.log(4), 2.0, "2.000 bits per byte", -1),
    "perplexity": (math.log(4), 4.0, "perplexity 4.0", -1),
    "squared-error": (0.25, 0.25, "squared error 0.2500", -1),
    "normalised-return": (40.0, 40.0, "normalised return 40.0", 1),
}


@pytest.mark.parametrize("name", metrics.names())
def test_a_score_is_a_function_of_a_mean_with_an_inverse(name):
    metric = metrics.find(name).metric
    mean, value, text, sign = SCORES[name]
    assert metric.value(mean) == pytest.approx(value)
    assert metric.mean(value) == pytest.approx(mean)
    assert (metric.sentence(value), metric.sign) == (text, sign)
    assert Metric.model_validate_json(metric.model_dump_json()) == metric


@pytest.mark.parametrize(("answers", "classes", "chance"), [
    (Classes(), 10, 10.0), (NextTokens(measure="bits-per-byte"), 256, 8.0),
    (NextTokens(), 50, 50.0), (Number(0.1), 1, None), (Actions(), 3, None),
    (Actions(measure="normalised-return"), 3, 0.0),
])  # fmt: skip
def test_the_metric_of_a_task_has_the_score_of_uniform_guesses(answers, classes, chance):
    expected = chance if chance is None else pytest.approx(chance)
    assert answers.metric_of(classes).chance == expected


def test_values_are_bits_or_numbers_with_0_where_there_is_no_target():
    scores, targets = torch.tensor([[[2.0, 0.0], [0.0, 0.0]]]), torch.tensor([[0, -1]])
    assert Classes().values(scores, targets).tolist() == [[True, False]]
    nats = NextTokens().values(scores, targets)
    assert nats.tolist() == [[pytest.approx(math.log(1 + math.exp(-2))), 0.0]]


@pytest.mark.parametrize(("name", "tokens", "words"), [
    ("copying", [2, 17, 0, 1], "s0 s15 blank request"),
    ("induction", [2, 1, 5, 1], "s0 special s3 special"),
    ("mqar", [7, 4096, 4095, 8191], "k7 v0 k4095 v4095"),
    ("adding", [1, 102, 38, 202, 101], "0 [0] 0.37 [1] 1"), ("majority", [1, 2, 2], "0 1 1"),
    ("histogram", [1, 2, 2], "0 1 1"), ("parity", [2, 1], "1 0"), ("scaling", [255, 3], "255 3"),
])  # fmt: skip
def test_the_tokens_of_a_synthetic_task_have_names(name, tokens, words):
    split = Split.single(torch.tensor([tokens], dtype=torch.int16), None, torch.tensor([0]))
    assert create(name).show(split, 0) == [words]


@pytest.mark.parametrize("task", [Text(), Retrieval()], ids=["text", "retrieval"])
def test_bytes_are_shown_as_text_and_truncated_characters_as_the_replacement_character(task):
    tokens = torch.tensor([1 + byte for byte in "café<br />".encode()]).expand(2, -1)
    split = Split.single(tokens, torch.tensor([11, 4]), torch.arange(2))
    assert task.show(split, 0) == ["café<br />"]
    assert task.show(split, 1) == ["caf\N{REPLACEMENT CHARACTER}"]
