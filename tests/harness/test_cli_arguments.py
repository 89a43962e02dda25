"""Numbers and unknown options on a command line."""

import pytest

from harness.cli.arguments import MOST, seeds_in
from tests.harness.test_cli import TINY
from zoo.registry import UserError


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("0-4", [0, 1, 2, 3, 4]),
        ("0-2,7", [0, 1, 2, 7]),
        ("7, 2-3 ,0", [7, 2, 3, 0]),
        ("0-2,1-3,1", [0, 1, 2, 3]),
        ("5-5", [5]),
        (str(2**32 - 1), [2**32 - 1]),
    ],
)
def test_seeds_are_numbers_and_ranges_each_once(text, seeds):
    assert seeds_in(text) == seeds


@pytest.mark.parametrize(
    "text", ["4-0", "0-", "-3", "-1-3", "0-1-2", "a-b", "0:4", "1k", f"0-{2**32}", "0-999999999999"]
)
def test_other_seeds_are_rejected_at_once(text):
    with pytest.raises(UserError, match=r"seeds .*give "):
        seeds_in(text)


def test_a_list_has_an_upper_bound():
    assert len(seeds_in(f"1-{MOST}")) == MOST
    with pytest.raises(UserError, match="more than 10,000"):
        seeds_in(f"0-{MOST}")


def test_a_range_of_seeds_is_run(call, store, unmeasured):
    assert call(*TINY, "-a", "none", "--seeds", "0-1,3")[0] == 0
    assert [record.spec.seed for record in store.read()[0]] == [0, 1, 3]


@pytest.mark.parametrize(
    ("arguments", "setting"),
    [
        (["run", "-a", "primal", "--lr", "3e-4"], "train.lr=3e-4"),
        (["run", "-a", "primal", "--lr=3e-4"], "train.lr=3e-4"),
        (["run", "-a", "none", "--lr"], "train.lr=VALUE"),
        (["run", "-a", "none", "--feed-forward", "8"], "model.feed_forward=8"),
        (["run", "-a", "softmax+primal", "--rank", "7"], "primal.rank=7"),
        (["run", "-a", "soft", "--landmarks", "7"], "soft.landmarks=7"),
        (["run", "-a", "none", "--landmarks", "7"], "nystrom.landmarks=7"),
        (["run", "-a", "none", "-t", "mqar", "--pairs", "4"], "mqar.pairs=4"),
        (["sweep", "-a", "none", "-t", "mqar", "--over", "train.lr=1", "--batch", "4"],
         "train.batch=4"),
        (["cost", "-a", "primal", "--rank", "4"], "primal.rank=4"),
    ],
)  # fmt: skip
def test_an_unknown_option_is_answered_with_the_setting_that_it_means(call, arguments, setting):
    code, out, err = call(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"--set {setting}" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "-a", "none", "--seed", "1"],  # an option of tasks, none of which is named
        ["run", "-a", "none", "--nothing", "1"],
        ["run", "-a", "none", "-q"],
        ["cost", "-a", "none", "--lr", "1"],  # no recipe
        ["report", "--lr", "1"],
    ],
)
def test_other_unknown_options_get_no_setting(call, arguments):
    code, out, err = call(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "No such option" in err and "give --set" not in err
