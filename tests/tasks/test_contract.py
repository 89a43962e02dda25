"""The contract of every task and of each metric, and examples as text."""

import math
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError
from torch.nn.utils.rnn import pad_sequence

import tasks as library
from tasks import contract, create, metrics
from tasks.answers import CLASSES, Actions, Classes, NextTokens, Number
from tasks.contract import Split
from tasks.lra.listops import tokenise
from tasks.lra.retrieval import Retrieval
from tasks.lra.text import Text
from tasks.metrics import Metric
from zoo.registry import UserError


def test_only_tasks_of_own_data_have_a_required_option():
    names = library.names(required_options=False)
    assert {*library.names()} - {*names} == {"control", "image-folder", "series", "table"}


@pytest.mark.parametrize(("name", "options", "message"), [
    ("listop", {}, "unknown task 'listop'; did you mean 'listops'"),
    ("listops", {"minlen": 50}, "did you mean 'min_len'"),
    ("listops", {"min_len": "x"}, "listops.min_len=x is not of type int"),
    ("table", {}, "table needs the option 'path'"),
])  # fmt: skip
def test_a_task_that_cannot_be_created_is_an_error(name, options, message):
    with pytest.raises(UserError, match=message):
        library.create(name, **options)


RULES = {
    "copying.max_len=31": "must be at least 32, 2 for each of count=16; raise it",
    "copying.symbols=1": "must be at least 2; raise it",
    "induction.max_len=8 specials=4": "must be at least 9, 2 for each of",
    "mqar.max_len=31": "must be at least 32, 4 for each of pairs=8",
    "mqar.vocabulary=7": "must be even; add one",
    "mqar.vocabulary=16": "must be at least 18, 2 for each of pairs=8 and 2 more",
    "adding.levels=1": "must be at least 2; raise it",
    "parity.train=0": "must be at least 1; raise it",
    "parity.dev=0": "must be at least 1; raise it", "parity.test=0": "must be at least 1; raise it",
    "s3.max_len=31": "must be at least 32, the tokens of train",
    "scaling.vocabulary=32769": "makes a vocabulary of 32769",
    "adding.levels=20000": "makes a vocabulary of 40001 tokens, 32768",
    "induction.symbols=32768": "makes a vocabulary of 32770",
    "mqar.vocabulary=32770": "makes a vocabulary of 32770",
    "listops.max_len=501 min_len=500": "must be at least 502, 2 above min_len=500",
    "listops.min_len=-1": "must be at least 0", "listops.dev=0": "must be at least 1",
    "listops.seed=-1": "must be at least 0", "listops.seed=4294967296": "must be below 2",
    "pathfinder.size=33": "is not one of 32, 64, 128; give one",
    "pathfinder.contour=7": "is not one of 6, 9, 14; give one",
    "pathfinder.train=0": "must be at least 1", "pathfinder.seed=4294967296": "must be below 2",
    "wikitext.max_len=0": "must be at least 1", "wikitext.words=1": "must be at least 2",
    "wikitext.train=-1": "must be at least 0",
    "uea-japanese-vowels.max_len=0": "must be at least 1", "text.max_len=0": "must be at least 1",
}  # fmt: skip


@pytest.mark.parametrize("text", RULES)
def test_an_option_out_of_range_is_rejected_with_its_rule(text):
    first, *others = text.split()
    name, _, option = first.partition(".")
    with pytest.raises(UserError, match=f"{first} {RULES[text]}"):
        library.create(name, **dict(text.split("=") for text in (option, *others)))


def test_the_loss_of_half_precision_scores_is_taken_in_single_precision():
    scores = torch.linspace(-3, 3, 15).reshape(5, 3).bfloat16()
    targets = torch.tensor([0, 1, 2, 0, 1])
    loss = CLASSES.loss(scores, targets)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, CLASSES.loss(scores.float(), targets))


def split_of(*sequences: list[int]) -> Split:
    """Each sequence as an example, padded to the longest with 9, an arbitrary token."""
    rows = [torch.tensor(sequence, dtype=torch.uint8) for sequence in sequences]
    padded = pad_sequence(rows, batch_first=True, padding_value=9)
    return Split.single(padded, torch.tensor([*map(len, rows)]), torch.arange(len(rows)))


def test_padding_and_integer_width_do_not_change_the_digest():
    split = split_of([1, 2, 3], [4])
    wider = replace(
        split,
        sequences=torch.tensor([[1, 2, 3, 0], [4, 0, 8, 8]]),
        lengths=split.lengths.long(),
        sequence_ids=split.sequence_ids.long(),
        targets=split.targets.int(),
    )
    assert wider.digest() == split.digest()


def test_the_digest_does_not_depend_on_the_chunks(monkeypatch):
    split = library.create("parity", train=3).load("train")
    digest = split.digest()
    monkeypatch.setattr(contract, "CHUNK", 2)
    assert split.digest() == digest
    last = split.sequences.clone()
    last[-1, -1] = 3 - last[-1, -1]
    assert replace(split, sequences=last, answers=Number(1.0)).digest() != digest


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


def test_a_perplexity_is_finite_at_any_loss():
    assert math.isfinite(metrics.find("perplexity").metric.value(1e6))


@pytest.mark.parametrize(
    ("answers", "classes", "chance"),
    [
        (Classes(), 10, 10.0), (NextTokens(measure="bits-per-byte"), 256, 8.0),
        (NextTokens(), 50, 50.0), (Number(0.1), 1, None), (Actions(), 3, None),
        (Actions(measure="normalised-return"), 3, 0.0),
    ],
)  # fmt: skip
def test_the_metric_of_a_task_has_the_score_of_uniform_guesses(answers, classes, chance):
    expected = chance if chance is None else pytest.approx(chance)
    assert answers.metric_of(classes).chance == expected


def test_values_are_bits_or_numbers_with_0_where_there_is_no_target():
    scores, targets = torch.tensor([[[2.0, 0.0], [0.0, 0.0]]]), torch.tensor([[0, -1]])
    assert Classes().values(scores, targets).tolist() == [[True, False]]
    nats = NextTokens().values(scores, targets)
    assert nats.tolist() == [[pytest.approx(math.log(1 + math.exp(-2))), 0.0]]


@pytest.mark.parametrize("change", [{"better": "larger"}, {"digits": -1}, {"scale": 0}, {"x": 1}])
def test_an_impossible_metric_is_rejected(change):
    fields = metrics.find("accuracy").metric.model_dump()
    with pytest.raises(ValidationError):
        Metric.model_validate(fields | change)


WORDS = {
    "copying": ([2, 17, 0, 1], "s0 s15 blank request"),
    "selective-copying": ([0, 3, 1], "blank s1 request"),
    "induction": ([2, 1, 5, 1], "s0 special s3 special"),
    "mqar": ([7, 4096, 4095, 8191], "k7 v0 k4095 v4095"),
    "adding": ([1, 102, 38, 202, 101], "0 [0] 0.37 [1] 1"), "majority": ([1, 2, 2], "0 1 1"),
    "histogram": ([1, 2, 2], "0 1 1"), "parity": ([2, 1], "1 0"), "scaling": ([255, 3], "255 3"),
}  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
def test_the_tokens_of_a_synthetic_task_have_names(name):
    (tokens, words), task = WORDS[name], create(name)
    assert max(tokens) < task.vocabulary
    split = Split.single(torch.tensor([tokens], dtype=torch.int16), None, torch.tensor([0]))
    assert task.show(split, 0) == [words]


@pytest.mark.parametrize("name", ["copying", "selective-copying", "induction", "mqar"])
def test_an_answer_has_the_name_of_its_token(name):
    task = create(name, train=3, dev=2, test=2)
    split = task.load("train")
    for example in range(len(split)):
        words = task.show(split, example)[0].split()
        answers = [task.class_name(target) for target in split.targets[example].tolist()]
        assert set(answers) <= set(words)
        if name == "copying":
            assert words[: len(answers)] == answers
        if name == "mqar":
            keys = [words.index(words[at]) for at in split.target_positions[example]]
            assert [words[key + 1] for key in keys] == answers


def test_a_tree_is_shown_as_it_is_written():
    source = "[MAX 2 9 [MIN 4 7 ] 0 [SM 8 [MED 1 2 ] ] ]"
    split = split_of(tokenise(source).tolist(), [1])
    task = create("listops")
    assert task.show(split, 0) == [source]
    assert task.show(split, 1) == [task.word(1)] == ["0"]


@pytest.mark.parametrize("task", [Text(), Retrieval()], ids=["text", "retrieval"])
def test_bytes_are_shown_as_text_and_truncated_characters_as_the_replacement_character(task):
    tokens = [1 + byte for byte in "café<br />".encode()]
    split = split_of(tokens, tokens[:4])
    assert task.show(split, 0) == ["café<br />"]
    assert task.show(split, 1) == ["caf\N{REPLACEMENT CHARACTER}"]


def test_every_sequence_of_an_example_is_shown():
    split = replace(split_of([98], [99, 100]), sequence_ids=torch.tensor([[1, 0], [1, 1]]).int())
    assert Retrieval().show(split, 0) == ["bc", "a"]
    assert split.tokens(1) == [[99, 100], [99, 100]]
