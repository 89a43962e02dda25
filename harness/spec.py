"""What a run is, as data: everything that decides its outcome, and nothing else.

Free of torch, so that records can be read anywhere.
"""

import hashlib
import json
from typing import Literal

from pydantic import BaseModel, ConfigDict

from zoo.registry import Value

Positions = Literal["learned", "rotary"]


class Frozen(BaseModel):
    """A value that never changes, refuses unknown fields, and holds finite numbers only."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ModelSpec(Frozen):
    """The transformer round a variant.

    Attributes:
        depth: number of layers.
        dim: width of tokens, embeddings and layers.
        heads: attention heads a layer.
        feed_forward: hidden width of the feed-forward block.
        head: hidden width of the classifier.
        dropout: probability behind the embedding, each attention and each feed-forward block.
        attention_dropout: probability of dropping an attention weight, where a variant has them.
        positions: `learned` adds a vector to each token, `rotary` turns queries and keys.
    """

    depth: int
    dim: int
    heads: int
    feed_forward: int
    head: int
    dropout: float
    attention_dropout: float
    positions: Positions = "learned"


class TrainSpec(Frozen):
    """The recipe of the optimiser.

    Attributes:
        batch: examples a step.
        steps: optimiser steps.
        warmup: steps of linear warm-up; the rate then falls linearly to about zero.
        lr: highest learning rate.
        betas: AdamW's.
        eps: AdamW's.
        weight_decay: AdamW's.
        evaluations: how often dev is read, evenly spaced, the last time after the last step.
        precision: of the matrix products; parameters and optimiser state are always fp32.
        compiled: whether the model runs through `torch.compile`.
    """

    batch: int
    steps: int
    warmup: int
    lr: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    evaluations: int
    precision: Literal["bf16", "fp32"]
    compiled: bool


class TaskSpec(Frozen):
    """A task and every option of it.

    Attributes:
        name: as registered.
        key: names all that is here, with the task's version.
        options: every option of the task.
        block: tokens of the blocks whose order is shuffled; 0 where every token keeps its place.
    """

    name: str
    key: str
    options: dict[str, Value]
    block: int = 0


class RunSpec(Frozen):
    """One cell: one variant, one task, one budget, one seed, one kind of device.

    Attributes:
        attention: the variant, or `A+B` for layers of A under a last layer of B.
        options: every option of every variant named, by variant.
        task: the task with its version and options.
        budget: name of the budget that `model` and `train` came from.
        model: the transformer.
        train: the optimiser's recipe.
        device: the kind of device; part of the identity because cost is part of the outcome.
        seed: decides initial parameters, data order and every random draw of the run.
    """

    attention: str
    options: dict[str, dict[str, Value]]
    task: TaskSpec
    budget: str
    model: ModelSpec
    train: TrainSpec
    device: Literal["cpu", "cuda"]
    seed: int

    @property
    def id(self) -> str:
        """The run's identity: 16 hexadecimal digits of the SHA-256 of its canonical JSON."""
        plain = self.model_dump(mode="json")
        # Records without these fields mean these values: hashing them would rename every such run.
        # See docs/decisions/0009-identity-grows.md.
        if self.model.positions == "learned":
            del plain["model"]["positions"]
        if self.task.block == 0:
            del plain["task"]["block"]
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]
