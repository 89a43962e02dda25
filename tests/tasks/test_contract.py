"""What every task gives, shown on one of six examples and on all that are registered."""

import pytest
import torch

from tasks import Task
from tasks.registry import tasks
from tasks.answers import CLASSES
from tasks.contract import Split
from zoo.registry import options_of


class Parity(Task):
    name = "parity"
    version = 3
    classes = 4
    vocabulary = 9

    def __init__(self, *, max_len: int = 3, seed: int = 0) -> None:
        self.max_len, self.seed = max_len, seed

    def load(self, split):
        targets = {"train": [2, 2, 1], "dev": [1, 1], "test": [2, 0, 1, 1, 2, 3, 1, 1]}[split]
        sequences = torch.arange(len(targets) * 3, dtype=torch.uint8).reshape(-1, 3) % 9
        lengths = torch.full((len(targets),), 3)
        lengths[0] = 1
        return Split.single(sequences, lengths, torch.tensor(targets))


def test_the_majority_is_the_commonest_class_of_train_as_it_occurs_in_test():
    train, test = (Parity().load(split).targets for split in ("train", "test"))
    assert CLASSES.baselines(train, test, 4) == {"chance": 0.25, "majority": 0.25}


def test_the_key_names_the_version_and_only_the_options_that_differ():
    assert Parity().key == "parity@3"
    assert Parity(seed=4).key == "parity@3[seed=4]"
    assert Parity(seed=4, max_len=2).key == "parity@3[max_len=2,seed=4]"


def test_a_batch_holds_the_examples_asked_for_in_their_order():
    batch = Parity().load("test").gather(torch.tensor([5, 0]))
    assert batch.tokens.tolist() == [[[6, 7, 8]], [[0, 1, 2]]]
    assert batch.targets.tolist() == [3, 2]


def test_only_the_first_tokens_of_a_short_document_are_kept():
    mask = Parity().load("train").gather(torch.tensor([0, 1])).mask
    assert mask is not None
    assert mask.tolist() == [[[True, False, False]], [[True, True, True]]]


def test_a_split_without_padding_needs_no_mask():
    whole = torch.zeros(2, 3, dtype=torch.uint8)
    split = Split.single(whole, torch.tensor([3, 3]), torch.tensor([0, 1]))
    assert split.gather(torch.tensor([1])).mask is None


@pytest.mark.parametrize("name", tasks.names())
def test_every_task_is_called_as_it_is_registered(name):
    assert tasks.find(name).name == name


@pytest.mark.parametrize("name", tasks.names())
def test_every_option_is_kept_under_its_own_name(name):
    task = tasks.find(name)()
    assert task.options == {n: p.default for n, p in options_of(tasks.find(name)).items()}
    assert task.key == f"{name}@{task.version}"


EITHER = [name for name, task in tasks.items() if "causal" in options_of(task)]


@pytest.mark.parametrize("name", EITHER)
def test_a_task_that_may_be_causal_or_not_is_what_it_is_told(name):
    assert [tasks.find(name)(causal=causal).causal for causal in (False, True)] == [False, True]


def test_the_loss_of_half_precision_scores_is_taken_in_single_precision():
    scores = torch.linspace(-3, 3, 15).reshape(5, 3).bfloat16()
    targets = torch.tensor([0, 1, 2, 0, 1])
    loss = CLASSES.loss(scores, targets)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, CLASSES.loss(scores.float(), targets))
