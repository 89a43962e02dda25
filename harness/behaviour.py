"""Golden numbers: what each variant and each optimiser computes; `python -m harness.behaviour`."""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from harness import recipes
from harness.data import restore
from harness.model import build_model
from harness.optimisers import OPTIMISERS
from harness.questions import composed, question_of, spec_of
from harness.records import suites
from harness.records.files import write_atomic
from harness.records.versions import LOOP, TRAINING, major
from harness.train import Progress, Trainer, fit
from zoo.conformance import configurations
from zoo.conformance.configuration import Configuration, Setting
from zoo.conformance.tensors import LONG, padding_masks, random_tokens, seeded
from zoo.registry import UserError, Value
from zoo.variants import variants

FILE = Path(__file__).with_name("behaviour.json")
LENGTH = 48  # Tokens: with few, the rounding of fp32 is far below its tolerance
# Rounding on other processors, relative to the largest number of a case.
PRECISIONS = {torch.float64: 1e-9, torch.float32: 1e-4}

# Training with the short convolution of the suites; evaluation with rotary positions and padding.
SETTINGS = tuple(
    Setting(training=training, dtype=dtype, short_conv=4 * training, rotary=rotary, max_len=LENGTH)
    for dtype in PRECISIONS
    for training, rotary in ((True, False), (False, True))
)

SMALL: Mapping[str, Mapping[str, Value]] = {
    "model": {"depth": 1, "dim": 32, "short_conv": 4, "dropout": 0.0},
    "train": {"steps": 20, "warmup": 5, "lr": 1e-2, "weight_decay": 0.1},
}

TRAININGS: tuple[Mapping[str, Value], ...] = (  # Fields of recipes
    *({"optimiser": name} for name in OPTIMISERS),
    {"schedule": "cosine"}, {"schedule": "constant", "clip": 0.1}, {"cycle_momentum": True},
    {"decay": "all"}, {"decay": "matrices+taps"}, {"label_smoothing": 0.1},
    {"bucket_by_length": True}, {"parts_by_length": True},
)  # fmt: skip


class Entry(NamedTuple):
    major: str
    numbers: Mapping[str, list[float]]


def option_sets(name: str) -> list[dict[str, Value]]:
    # One of the sets that differ only in positive numbers.
    return [*{"{}": {}, **_option_sets()[name]}.values()]


@cache
def _option_sets() -> Mapping[str, dict[str, dict[str, Value]]]:
    found = defaultdict[str, dict[str, dict[str, Value]]](dict)
    for suite in map(suites.find, suites.names()):
        for of_task in recipes.of_suite(suite).values():
            for row in suite.rows:
                _, run = composed(of_task.variants, row.attention, row.options)
                for name, options in run["options"].items():
                    kinds = {
                        n: v if isinstance(v, bool | str) else v > 0 for n, v in options.items()
                    }
                    found[name].setdefault(str(kinds), options)
    return found


def _numbers(form: Configuration, setting: Setting) -> list[float]:
    with _float64():
        try:
            layer = form.layer_for(setting)
        except UserError:
            layer = form.layer_for(setting._replace(rotary=False))
    x = random_tokens(3, setting.max_len).to(setting.dtype).requires_grad_()
    mask = None if setting.training else padding_masks(LENGTH)[1]
    attended = setting.run(layer, x, mask)
    outputs = [attended.tokens if mask is None else attended.tokens[mask]]
    outputs += [loss for _, loss in sorted(attended.losses.items())]
    total = torch.stack([_projection(tensor) for tensor in outputs]).sum()
    of = [x, *(parameter for _, parameter in sorted(layer.named_parameters()))]
    gradients = torch.autograd.grad(total, of, allow_unused=True)
    found = [*outputs, *(each for each in gradients if each is not None)]
    digits = 10 if setting.dtype == torch.float64 else 6
    return [_rounded(_projection(each.detach()).item(), digits) for each in found]


def _projection(tensor: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(tensor.numel())
    weights = torch.randn(tensor.numel(), dtype=torch.float64, generator=generator)
    return weights @ tensor.double().flatten() / tensor.numel() ** 0.5


def _rounded(number: float, digits: int) -> float:
    return float(f"{number:.{digits}g}")


@contextmanager
def _float64() -> Iterator[None]:
    # Normal numbers drawn in fp32 depend on the processor.
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def of_training(fields: Mapping[str, Value]) -> list[float]:
    question = question_of("recall", "smoke", {**SMALL, "train": {**SMALL["train"], **fields}})
    spec, progress = spec_of(question, "delta"), Progress()
    data = restore(spec)
    # fp64: rounding grows tenfold every few steps of Adam.
    with seeded(1), _float64():
        model = build_model(spec, data.task)
        trainer = Trainer(model, data.splits["train"], spec.train, spec.seed)
        fit(trainer, data.splits["dev"], progress, lambda point: None, lambda: None)
    return [_rounded(point.loss, 6) for point in progress.curve]


def names() -> list[str]:
    return [*(name for name, variant in variants.built_in() if not variant.unchecked), LOOP]


def now(name: str) -> Entry:
    if name == LOOP:
        return Entry(major(TRAINING), {str(fields): of_training(fields) for fields in TRAININGS})
    variant, numbers = variants.find(name), dict[str, list[float]]()
    for options in option_sets(name):
        text = "".join(f", {option}={value}" for option, value in options.items())
        for form in configurations(name, variant, options):
            for setting in SETTINGS:
                numbers[f"{form.label}{text}, {setting}"] = _numbers(form, setting)
            if not options:
                # Implementations may change their method at this length.
                long = SETTINGS[0]._replace(max_len=LONG)
                numbers[f"{form.label}, {LONG} tokens"] = _numbers(form, long)
    return Entry(major(variant.version), numbers)


def recorded() -> dict[str, Entry]:
    return {name: Entry(*entry) for name, entry in json.loads(FILE.read_text()).items()}


def differences(before: Entry, after: Entry) -> list[str]:
    both = before.numbers.keys() & after.numbers.keys()
    return sorted(
        case for case in both if not same(case, before.numbers[case], after.numbers[case])
    )


def same(case: str, before: list[float], after: list[float]) -> bool:
    exact = "float64" in case or case.endswith(" tokens")
    bound = PRECISIONS[torch.float64 if exact else torch.float32] * max(map(abs, before))
    pairs = zip(before, after, strict=False)
    return len(before) == len(after) and all(abs(a - b) <= bound for a, b in pairs)


def main() -> None:
    before, found, wrong = recorded() if FILE.exists() else {}, dict[str, Entry](), False
    for name in names():
        old, new = before.get(name, Entry("", {})), now(name)
        if old.major == new.major and (cases := differences(old, new)):
            sys.stdout.write(f"{name}: other numbers ({cases[0]}); raise its version {old.major}\n")
            wrong = True
        # Equal numbers keep the digits of the machine that wrote them.
        kept = old.numbers if old.major == new.major else {}
        found[name] = Entry(new.major, {case: kept.get(case, n) for case, n in new.numbers.items()})
    if not wrong:
        lines = (f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in found.items())
        write_atomic(FILE, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    sys.exit(wrong)


if __name__ == "__main__":
    main()
