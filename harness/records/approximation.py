"""How far an attention variant is from softmax attention with the same projections."""

from typing import Annotated

from pydantic import Field

from harness.records.fields import Count, Frozen
from zoo.registry import Value

Error = Annotated[float, Field(ge=0)]


class Approximation(Frozen):
    """The errors of one layer on inputs of one kind, root mean squares over the samples.

    Attributes:
        attention: the variant.
        options: its options that were given.
        inputs: `random`, `smooth`, or the run and layer whose inputs they are.
        length: tokens; the longest of the samples.
        logits: standard deviation of the scores q . k / sqrt(e) of softmax.
        samples: sequences.
        output: of the layer's output, relative to the deviation of softmax's output from its mean
            over tokens: 1 is the error of the best constant output.
        weights: of the attention matrix, relative to the distance of softmax from uniform weights,
            so that 1 is the error of uniform weights.
        gradient: of the gradient of a random linear function of the output by the input, relative.
        log_weights: of the logarithms of the weights, less their mean in each row, relative to
            those of softmax; over the pairs of tokens with a positive weight, None without any.
        positive: the share of these pairs.
    """

    attention: str
    options: dict[str, Value]
    inputs: str
    length: Count
    logits: Error
    samples: Count
    output: Error
    weights: Error
    gradient: Error
    log_weights: Error | None
    positive: Annotated[float, Field(ge=0, le=1)]
