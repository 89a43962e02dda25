"""The page of errors of approximations of softmax as Markdown: a table for each kind of input."""

from collections.abc import Sequence

from harness.records.approximation import Approximation
from reports.markdown import escape, table
from reports.tables.approximation import cells, label

HEAD = """\
# Approximation of softmax attention

A layer of softmax gives its projections to the variant; both are called on the same tokens, without
padding and in evaluation mode. *Output*: the error of the layer's output, relative to softmax's
output without its mean over tokens: 1 is as far off as a constant output. *Weights*: the error of
the attention matrix, relative to the distance of softmax from uniform weights: 1 is as far off as
uniform weights, whose error is 1 by definition. *Gradient*: the relative error of the gradient of a
random linear function of the output by the input. *Log weights*: the relative error of the
logarithms of the weights, less their mean in each row, over the pairs of tokens with a positive
weight, whose share is *positive*. *Logits*: the standard deviation of q k^T / sqrt(e).
"""


def approximation(all_errors: Sequence[Approximation]) -> str:
    """The page, with the inputs in the order of their first row."""
    parts = [HEAD]
    head = ["variant", "tokens", "logits", "output", "weights", "gradient", "log weights",
            "positive"]  # fmt: skip
    for inputs in dict.fromkeys(one.inputs for one in all_errors):
        rows = [
            [escape(label(one)), f"{one.length:,}", f"{one.logits:.2g}", *cells(one)]
            for one in all_errors
            if one.inputs == inputs
        ]
        parts += [f"## Inputs: {escape(inputs)}\n", table(head, rows, align_right=True)]
    return "\n".join(parts)
