"""Runs that take a tenth of a second; their data are generated once."""

import signal
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.cli import main
from harness.costs.sweep import Outcome
from harness.data import Data, restore
from harness.environment import describe
from harness.model import build_model
from harness.questions import question_of, spec_of
from harness.records.cost import CostStatus
from harness.records.record import Environment, Record
from harness.records.spec import RunSpec
from harness.records.store import Store
from harness.runner import run
from harness.train import Trainer
from tasks import Split
from tests.harness.specs import LIMITS, MEASURED

TREES = {"min_len": 2, "max_len": 24, "train": 64, "dev": 16, "test": 18}

# Options of a command for these trees.
SMALL = [part for name, value in TREES.items() for part in ("--set", f"listops.{name}={value}")]

# Seconds after which a process counts as one that hangs, on a machine under any load.
DEADLINE = 600.0

# Commands with the option `--store`.
STORED = ("run", "status", "cost", "report", "study", "pack")


@pytest.fixture
def unread(monkeypatch) -> None:
    monkeypatch.setattr(Data, "digests", {"train": "a", "dev": "b", "test": "c"})


@pytest.fixture(autouse=True)
def data_home(shared_data, monkeypatch) -> Path:
    monkeypatch.setenv("HARNESS_DATA", str(shared_data))
    return shared_data


@pytest.fixture
def tiny() -> Callable[..., RunSpec]:
    def make(
        attention: str = "softmax", seed: int = 0, settings: Mapping[str, Mapping] = {}, **train
    ) -> RunSpec:
        settings = {**settings, "listops": {**TREES, **settings.get("listops", {})}}
        spec = requested(attention, "listops", seed=seed, **settings)
        train = spec.question.train.model_copy(update=train)
        question = spec.question.model_copy(update={"train": train})
        return spec.model_copy(update={"question": question})

    return make


@pytest.fixture
def dev(tiny) -> Split:
    return restore(tiny()).splits["dev"]


def requested(
    attention: str, task: str, positions: str = "", recipe: str = "smoke", seed: int = 0, **settings
) -> RunSpec:
    question = question_of(task, recipe, settings, positions=positions)
    return spec_of(question, attention, settings, seed=seed)


@pytest.fixture
def prepare() -> Callable[[RunSpec], Trainer]:
    def make(spec: RunSpec) -> Trainer:
        torch.manual_seed(spec.seed)
        model = build_model(spec, restore(spec).task)
        return Trainer(model, restore(spec).splits["train"], spec.train, spec.seed)

    return make


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "runs")


@pytest.fixture
def install(tmp_path, monkeypatch) -> Callable[..., Path]:
    # Also for processes that the test starts; returns the folder of modules.
    def make(points: Mapping[str, Mapping[str, str]]) -> Path:
        folder = tmp_path / "site" / "plug_ins-1.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plug-ins\nVersion: 1\n")
        lines = [
            "\n".join([f"[{group}]", *(f"{name} = {value}" for name, value in named.items())])
            for group, named in points.items()
        ]
        (folder / "entry_points.txt").write_text("\n".join(lines))
        monkeypatch.syspath_prepend(folder.parent)
        return folder.parent

    return make


@pytest.fixture
def outcomes(monkeypatch) -> dict[str, CostStatus]:
    # Outcomes of measurements by variant, else `ok`; nothing is measured, no figure drawn.
    statuses = {}

    def measure(spec, *_, **__) -> Outcome:
        status = statuses.get(spec.attention, "ok")
        return Outcome(status, *(("", MEASURED) if status == "ok" else ("a reason", None)))

    monkeypatch.setattr("harness.costs.sweep.measure_in_process", measure)
    monkeypatch.setattr("harness.costs.measurement.measure_limits", lambda *_: LIMITS)
    monkeypatch.setattr("reports.figures.style.images", lambda *_: {})
    return statuses


@pytest.fixture
def interrupt_at(monkeypatch):
    def arrange(number: int, error: BaseException) -> None:
        real, left = Trainer.step, [error]

        def step(self, at):
            if at == number and left:
                raise left.pop()
            return real(self, at)

        monkeypatch.setattr(Trainer, "step", step)

    return arrange


@pytest.fixture
def recorded(monkeypatch) -> Callable[..., list]:
    # What `of` returns for the arguments of each call of a function, which then does its work.
    def make(owner: Any, name: str, of: Callable[..., Any]) -> list:
        real, found = getattr(owner, name), []

        def call(*arguments, **named):
            found.append(of(*arguments))
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, call)
        return found

    return make


@pytest.fixture
def interruptible():
    # A shell starts processes in the background without a handler of SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def reported() -> defaultdict[str, list]:
    return defaultdict(list)


@pytest.fixture
def run_here(store, reported) -> Callable[..., Record]:
    def make(spec: RunSpec, store: Store = store, **options) -> Record:
        return run(spec, store, lambda what, value: reported[what].append(value), **options)

    return make


@pytest.fixture
def interrupted(run_here, interrupt_at) -> Callable[..., RunSpec]:
    def make(spec: RunSpec, **options) -> RunSpec:
        interrupt_at(3, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            run_here(spec, **options)
        return spec

    return make


@pytest.fixture
def environment_is(monkeypatch) -> Callable[..., Environment]:
    def make(**changes) -> Environment:
        other = describe("cpu").model_copy(update=changes)
        monkeypatch.setattr("harness.environment.describe", lambda kind: other)
        return other

    return make


@pytest.fixture
def call(capsys, store, unrendered):
    def run(*argv: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([*argv, "--store", str(store.folder)] if argv[0] in STORED else argv)
        return (ended.value.code, *capsys.readouterr())

    return run


@pytest.fixture
def output(call) -> Callable[..., str]:
    def run(*argv: str) -> str:
        code, out, err = call(*argv)
        # Progress of a command with `--json` is written to stderr.
        assert code == 0 and ("--json" in argv or not err), out + err
        return out

    return run


@pytest.fixture
def rejected(call) -> Callable[..., str]:
    def run(*argv: str) -> str:
        code, out, err = call(*argv)
        (line,) = err.splitlines()
        assert code == 2 and line.startswith("harness: ") and line.isprintable()
        # A model of equal size is sought with its data.
        assert not out or "--match" in argv
        return line

    return run
