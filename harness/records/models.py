"""The specifications of models, by kind of input."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from harness.records.fields import Count, Frozen, Probability

Positions = Literal["learned", "rotary", "none"]


class Transformer(Frozen):
    """The fields of all transformers around a variant."""

    depth: Count
    dim: Count
    heads: Count
    feed_forward: Count
    # Probability after the embedding, each attention and both linear layers of each feed-forward
    # block
    dropout: Probability
    # Probability of dropping an attention weight, if a variant has weights
    attention_dropout: Probability


class SequenceModel(Transformer):
    """A transformer of our layers."""

    # Taps of the convolution behind the projections of queries, keys and values; 0 for none. See
    # `zoo.projection`.
    short_conv: Annotated[int, Field(ge=0, lt=2**31)] = 0
    # What each layer computes again in the backward pass instead of storing it
    recompute: Literal["none", "attention", "layer"] = "none"
    # `pre` normalises the input of each block (layer norm); `post` and `batch` normalise the sum
    # behind it (layer norm, batch norm); see `zoo.post_norm`
    norm: Literal["pre", "post", "batch"] = "pre"

    def _check(self) -> None:
        if self.norm == "batch" and self.recompute == "layer":
            raise ValueError(
                "norm=batch with recompute=layer counts each batch twice; use recompute=attention"
            )


class Encoder(SequenceModel):
    """The model of sequences: see `harness.classifier`."""

    kind: Literal["encoder"] = "encoder"
    # Hidden width of the classifier; 0 for a linear one
    head: Annotated[int, Field(ge=0, lt=2**63)]
    # `learned` adds a vector to each token; `rotary` rotates queries and keys; `none` leaves the
    # order to causality, convolutions and decay
    positions: Positions
    # `mean` gives the classifier the mean of the tokens; `flatten` all tokens in order; `decode`
    # the vectors at target positions (`AnswerDecoder`). The last two ignore `head`.
    pooling: Literal["mean", "flatten", "decode"] = "mean"
    # Standard deviation of the initial embeddings of tokens and positions; see
    # docs/decisions/suites.md
    embedding_std: Annotated[float, Field(gt=0)] = 0.02


class VisionTransformer(Transformer):
    """The model of images: see `harness.model`.

    `drop_path` is the probability of leaving out the last attention and feed-forward block for an
    image; it falls linearly to 0 at the first layer (Huang et al., 2016, arXiv 1603.09382).
    """

    kind: Literal["vision"] = "vision"
    drop_path: Probability = 0.0


class DecisionTransformer(SequenceModel):
    """The model of trajectories: see `harness.model`; a step has its time."""

    kind: Literal["decision"] = "decision"
    positions: Literal["learned", "rotary"]


Model = Annotated[Encoder | VisionTransformer | DecisionTransformer, Field(discriminator="kind")]

# The specification of the model by `Task.inputs`.
MODELS: Mapping[str, type[Encoder | VisionTransformer | DecisionTransformer]] = {
    "sequences": Encoder,
    "images": VisionTransformer,
    "trajectories": DecisionTransformer,
}
