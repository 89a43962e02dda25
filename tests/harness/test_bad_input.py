"""Bad values of options, in kind: each is one printable line, exit code 2, and no file."""

import os

import pytest

from tasks.registry import tasks
from tasks.synthetic.base import SyntheticTask

RUN = ("run", "--budget", "smoke", "--precision", "fp32", "-a", "primal")
NUMBERS = (
    "", "x", "-1", "nan", "inf", "-inf", "1e400", str(10**20), "0x10", "\x1b[31m", "9" * 5000,
)  # fmt: skip
OPTIONS = {
    "rank": (*RUN, "--set", "primal.rank="),
    "depth": (*RUN, "--set", "model.depth="),
    "batch": (*RUN, "--set", "train.batch="),
    "dropout": (*RUN, "--set", "model.dropout="),
    "train": (*RUN, "--set", "listops.train="),
    "seeds": (*RUN, "--seeds", ""),
    "workers": (*RUN, "--workers", ""),
    "dim": ("cost", "-a", "none", "--dim", ""),
    "heads": ("cost", "-a", "none", "--heads", ""),
    "lengths": ("cost", "-a", "none", "--lengths", ""),
    "timeout": ("cost", "-a", "none", "--timeout", ""),
    "tokens": ("study", "ksvd", "--tokens", ""),
    "width": ("study", "ksvd", "--dim", ""),
    "windows": ("study", "locality", "listops", "--budget", "smoke", "--windows", ""),
}
SYNTHETIC = [name for name, task in tasks.items() if issubclass(task, SyntheticTask)]


@pytest.fixture
def rejected(call, tmp_path, monkeypatch):
    """Runs a command in an empty folder, and checks how it is rejected."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(*argv: str) -> str:
        code, _, err = call(*argv)
        (line,) = err.splitlines()
        assert code == 2 and line.startswith("harness: ") and line.isprintable()
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]
        return line

    return run


@pytest.mark.parametrize("option", OPTIONS)
def test_a_bad_number_is_one_line(rejected, option):
    *argv, last = OPTIONS[option]
    for number in NUMBERS:
        rejected(*argv, f"{last}{number}")


@pytest.mark.parametrize("option", ["train", "dev", "max_len"])
def test_data_beyond_the_memory_are_one_line(rejected, option):
    for task in [*SYNTHETIC, "listops"]:
        assert "of memory" in rejected(*RUN, "-t", task, "--set", f"{task}.{option}={2**50}")


def test_a_table_of_products_beyond_the_memory_is_one_line(rejected):
    setting = f"modular-addition.symbols={2**20}"
    assert "of memory" in rejected(*RUN, "-t", "modular-addition", "--set", setting)


@pytest.mark.filterwarnings("always")
def test_pipes_in_a_store_block_nothing(call, store):
    store.locks.folder.mkdir(parents=True)
    for name in (".index", ".locks/a.json", ".locks/command-a.cells", "a.json"):
        os.mkfifo(store.folder / name)
    code, out, err = call("status")
    assert (code, err.count("\n")) == (0, 1) and out.startswith("0 of 0 cells done")
