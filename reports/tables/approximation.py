"""Errors of approximations of softmax as lines: of the page, and of the CSV file."""

from collections.abc import Sequence

from harness.records.approximation import Approximation
from reports.tables.values import NOTHING, number
from reports.text import csv_text

HEADINGS = (
    "attention", "options", "inputs", "length", "logits", "samples", "output_error",
    "weights_error", "gradient_error", "log_weights_error", "positive_share",
)  # fmt: skip


def label(one: Approximation) -> str:
    """The variant, with the options that were given."""
    options = ", ".join(f"{name}={value}" for name, value in sorted(one.options.items()))
    return f"{one.attention} ({options})" if options else one.attention


def cells(one: Approximation) -> list[str]:
    """The errors, in the order of `HEADINGS`."""
    logarithms = NOTHING if one.log_weights is None else number(one.log_weights)
    errors = [number(error) for error in (one.output, one.weights, one.gradient)]
    return [*errors, logarithms, f"{100 * one.positive:.0f} %"]


def as_csv(all_errors: Sequence[Approximation]) -> str:
    """A line for each, at full precision."""
    return csv_text(HEADINGS, map(_line, all_errors))


def _line(one: Approximation) -> dict[str, object]:
    values = [
        one.attention, label(one), one.inputs, one.length, one.logits, one.samples, one.output,
        one.weights, one.gradient, one.log_weights, one.positive,
    ]  # fmt: skip
    return dict(zip(HEADINGS, values, strict=True))
