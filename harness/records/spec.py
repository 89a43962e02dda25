"""The specification of a run: its model, training and task, all that determines its outcome."""

import hashlib
import json
import math
import re
import shlex
from collections.abc import Mapping
from functools import cache, cached_property
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator

from harness.records.fields import Count, Device, Frozen, Identified, Precision, Probability, Rate
from zoo.registry import Value

Point = Mapping[str, Value]  # A point of a grid: the value of each tuned field, by path
Magnitude = Annotated[float, Field(ge=0)]
Positions = Literal["learned", "rotary", "none"]


class Transformer(Frozen):
    depth: Count
    dim: Count
    heads: Count
    feed_forward: Count
    # After the embedding, each attention and both layers of each feed-forward block
    dropout: Probability
    # Probability of dropping an attention weight, if a variant has weights
    attention_dropout: Probability


class SequenceModel(Transformer):
    # Taps of the convolution behind queries, keys and values, or 0: see `zoo.projection`
    short_conv: Annotated[int, Field(ge=0, lt=2**31)] = 0
    # What each layer computes again in the backward pass instead of storing it
    recompute: Literal["none", "attention", "layer"] = "none"
    # `pre` normalises the input of each block (layer norm); `post` and `batch` normalise the sum
    # behind it (layer norm, batch norm); see `zoo.post_norm`
    norm: Literal["pre", "post", "batch"] = "pre"

    def model_post_init(self, _: Any) -> None:
        if self.norm == "batch" and self.recompute == "layer":
            raise ValueError(
                "norm=batch with recompute=layer counts each batch twice; use recompute=attention"
            )


class Encoder(SequenceModel):
    kind: Literal["encoder"] = "encoder"
    # Hidden width of the classifier; 0 for a linear one
    head: Annotated[int, Field(ge=0, lt=2**63)]
    # `learned` adds a vector to each token; `rotary` rotates queries and keys; `none` leaves the
    # order to causality, convolutions and decay
    positions: Positions
    # `mean` gives the classifier the mean of the tokens; `flatten` all tokens in order; `decode`
    # the vectors at target positions (`AnswerDecoder`). The last two ignore `head`.
    pooling: Literal["mean", "flatten", "decode"] = "mean"
    # Standard deviation of the initial embeddings; see docs/decisions/suites.md
    embedding_std: Annotated[float, Field(gt=0)] = 0.02


class VisionTransformer(Transformer):
    """The model of images: see `harness.model`.

    `drop_path` is the probability of leaving out the last attention and feed-forward block for an
    image; it falls linearly to 0 at the first layer (Huang et al., 2016, arXiv 1603.09382).
    """

    kind: Literal["vision"] = "vision"
    drop_path: Probability = 0.0


class DecisionTransformer(SequenceModel):
    kind: Literal["decision"] = "decision"
    positions: Literal["learned", "rotary"]


Model = Annotated[Encoder | VisionTransformer | DecisionTransformer, Field(discriminator="kind")]

# The specification of the model by `Task.inputs`.
MODELS: Mapping[str, type[Encoder | VisionTransformer | DecisionTransformer]] = {
    "sequences": Encoder,
    "images": VisionTransformer,
    "trajectories": DecisionTransformer,
}


class Augment(Frozen):
    transform: Literal["none", "crop", "deit"] = "none"  # See `tasks.data.images`
    mixup: Magnitude = 0.0  # Alpha of mixup (Zhang et al., 2018, arXiv 1710.09412); 0 for none
    # Alpha of CutMix (Yun et al., 2019, arXiv 1905.04899); 0 for none. With both, each batch has
    # one of them.
    cutmix: Magnitude = 0.0


class TrainSpec(Frozen):
    batch: Count
    steps: Count
    # Steps in which the rate rises linearly to `lr`, before `schedule`
    warmup: Annotated[int, Field(ge=0)]
    lr: Rate
    betas: tuple[Probability, Probability]  # Also accepted as text, `0.9,0.98`
    # Whether beta1 falls from 0.95 to 0.85 in warm-up and rises again, as in `OneCycleLR`
    cycle_momentum: bool
    eps: Annotated[float, Field(gt=0)]
    weight_decay: Magnitude
    # Number of evaluations on dev, evenly spaced, the last one after the last step
    evaluations: Count
    precision: Precision  # Of the matrix products; parameters and optimiser state are always fp32
    compiled: bool
    # Whether a batch holds examples of similar length, padded to the longest
    bucket_by_length: bool = False
    # Whether examples pass the model in parts of equal length; the loss is the same
    parts_by_length: bool = False
    # The score on dev at which training ends, once two evaluations in a row reach it
    stop_at: float | None = None
    optimiser: Literal["adamw", "radam", "muon"] = "adamw"  # See `harness.optimisers`
    # The smaller side of a matrix from which `muon` updates it; AdamW updates others, such as the
    # maps of gates, which have an output for each head
    muon_from: Annotated[int, Field(ge=0)] = 0
    # See `SCHEDULES` of `harness.train`
    schedule: Literal["one-cycle", "cosine", "constant"] = "one-cycle"
    clip: Magnitude = 0.0  # Largest norm of the gradient of all parameters; 0 for no limit
    # Whether to evaluate test with dev and record its best score, which selects nothing
    best_on_test: bool = False
    # What `weight_decay` applies to: `all` parameters, or `matrices`, which excludes vectors, taps
    # of depth-wise convolutions, `undecayed` parameters of a variant, and positions and class token
    # of images; `matrices+taps` includes the taps
    decay: Literal["all", "matrices", "matrices+taps"] = "matrices"
    # Weight of the uniform distribution in the target of the loss
    label_smoothing: Probability = 0.0
    # The augmentation of images; a name, as `crop`, is a transform alone
    augment: Augment | None = None

    @field_validator("augment", mode="before")
    @classmethod
    def _name_transform(cls, value: Any) -> Any:
        chosen = {"transform": value} if isinstance(value, str) else value
        return None if chosen in ({"transform": "none"}, Augment()) else chosen

    @field_validator("betas", mode="before")
    @classmethod
    def _split_betas(cls, value: Any) -> Any:
        betas = value.split(",") if isinstance(value, str) else value
        if not isinstance(betas, list | tuple) or len(betas) != 2:
            raise ValueError("two numbers separated by a comma are needed, such as 0.9,0.98")
        return tuple(betas)

    def model_post_init(self, _: Any) -> None:
        images, by_length = self.augment or Augment(), self.bucket_by_length or self.parts_by_length
        problems = {
            f"warmup={self.warmup} exceeds steps={self.steps}; lower warmup or raise steps":
                self.warmup > self.steps,
            f"schedule={self.schedule} needs cycle_momentum=false":
                self.schedule in ("constant", "cosine") and self.cycle_momentum,
            f"batch={self.batch} is odd; mixup and cutmix pair images; give an even batch":
                (images.mixup or images.cutmix) and self.batch % 2,
            f"{'bucket' if self.bucket_by_length else 'parts'}_by_length=true gives batches of "
            "many lengths, and a compiled model is compiled again for each; use either":
                self.compiled and by_length,
            "bucket_by_length and parts_by_length are both true; use either":
                self.bucket_by_length and self.parts_by_length,
        }  # fmt: skip
        for text, is_there in problems.items():
            if is_there:
                raise ValueError(text)


@cache
def _in_a_name(text: str) -> str:
    return re.sub(r"[/*()]", "-", text)


@cache
def data_name(name: str, key: str, digests: tuple[tuple[str, str], ...]) -> str:
    text = json.dumps([key, dict(digests)], sort_keys=True)
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


class TaskSpec(Frozen):
    name: str
    key: str  # `name@version[option=value,...]`, with the options that differ from the defaults
    options: dict[str, Value]
    # SHA-256 of each split, by name; empty in a question, whose data may be unread
    digests: dict[str, str] = Field(default={})

    @property
    def file_name(self) -> str:
        return data_name(self.name, self.key, tuple(self.digests.items()))


class Question(Identified):
    """Everything that is held fixed around a variant: runs of one table share it."""

    name: str  # Its name in a suite, or its task and recipe, with what differs from the recipe
    suite: str = ""  # As `laptop@3`; empty without a suite
    declared: str = ""  # The digest of its table in that suite; see `harness.recipes.declared`
    task: TaskSpec
    recipe: str
    model: Model
    train: TrainSpec
    # The options that the recipe gives to variants; `+V` is V as last layer of A+V
    variants: dict[str, dict[str, Value]] = Field(default={})
    # The values of each tuned field, by path, as `train.lr`; the grid is their product. `model` and
    # `train` have the values of the recipe.
    grid: dict[str, tuple[Value, ...]] = Field(default={})
    # `parameters` if the feed-forward width of each row makes them equal to softmax's
    match: Literal["parameters"] | None = None

    @property
    def title(self) -> str:
        return f"{self.suite}/{self.name}" if self.suite else self.name

    @property
    def points(self) -> list[Point]:
        # One empty point without a grid.
        values = product(*self.grid.values())
        return [dict(zip(self.grid, point, strict=True)) for point in values]

    def model_post_init(self, _: Any) -> None:
        for path, values in self.grid.items():
            if path.partition(".")[0] not in ("model", "train") or field_at(self, path) is None:
                raise ValueError(f"{path!r} is no field of model or train")
            if not values:
                raise ValueError(f"{path!r} has no value in the grid")


_questions: dict[tuple[str, ...], Question] = {}


def _shared(question: Question) -> Question:
    # The runs of a question have one object, whose text is made once. 1, 1.0 and true are equal,
    # so the key has the texts of options.
    options = str((question.task.options, question.variants, question.grid))
    key = (question.suite, question.name, question.declared, options)
    known = _questions.setdefault(key, question)
    return known if known == question else question


class RunSpec(Identified):
    """One run: one question, one variant, one seed, one kind of device."""

    question: Annotated[Question, AfterValidator(_shared)]
    attention: str  # `A`, or `A+B` for layers of A with a last layer of B
    layers: Annotated[tuple[str, ...], Field(min_length=1)]
    options: dict[str, dict[str, Value]]  # The options that differ from the defaults, by variant
    # Those that differ from the question's, by `VARIANT.OPTION`
    overrides: dict[str, Value] = Field(default={})
    # Fields of model and train of this run alone, by path: a point of the grid, the width of a
    # matched model, or the positions of the published set-up
    values: dict[str, Value] = Field(default={})
    # `trial` for a run whose score on dev chooses a point, and whose score on test is unused;
    # `final` for a run at the chosen point; empty without a grid
    role: Literal["trial", "final", ""] = ""
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    device: Device
    data: dict[str, str]  # SHA-256 of each split of the task, by name

    @cached_property
    def text(self) -> str:
        fields = {**self.model_dump(mode="json", exclude={"question"}), "question": None}
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        return text.replace('"question":null', f'"question":{self.question.text}', 1)

    @property
    def task(self) -> TaskSpec:
        return self.question.task.model_copy(update={"digests": self.data})

    @property
    def model(self) -> Model:
        return self.question.model.model_copy(update=self._values_of("model"))

    @property
    def train(self) -> TrainSpec:
        return self.question.train.model_copy(update=self._values_of("train"))

    @property
    def variants(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.layers))

    @property
    def row(self) -> str:
        # In a suite a matched model is a row of its own.
        match = self.question.match if self.question.suite else None
        return label_of(self.attention, {**({"match": match} if match else {}), **self.overrides})

    @property
    def file_name(self) -> str:
        # As `SUITE@VERSION/QUESTION` and `(A+B)*2`.
        attention, recipe = _in_a_name(self.attention), _in_a_name(self.question.recipe)
        return f"{self.task.name}-{attention}-{recipe}-{self.device}-s{self.seed}-{self.id}"

    @property
    def distance(self) -> float:
        # From the recipe, over the fields of the grid.
        question = self.question
        return float(sum(_difference(self.values[path], field_at(question, path))
                         for path in question.grid if path in self.values))  # fmt: skip

    def _values_of(self, part: str) -> dict[str, Value]:
        named = (path.partition(".")[::2] for path in self.values)
        return {name: self.values[f"{part}.{name}"] for owner, name in named if owner == part}

    def model_post_init(self, _: Any) -> None:
        if len(self.layers) != self.model.depth:
            raise ValueError(f"{len(self.layers)} layers are not depth={self.model.depth}")
        of_rows = {"model.feed_forward", "model.positions"}
        if unknown := self.values.keys() - {*self.question.grid, *of_rows}:
            raise ValueError(f"{min(unknown)!r} is no field of the question's grid")


def _difference(value: Value, other: Value) -> float:
    # The logarithm of the ratio of positive numbers; else 0 or 1.
    if value == other:
        return 0.0
    if isinstance(value, int | float) and isinstance(other, int | float) and min(value, other) > 0:
        return abs(math.log(value / other))
    return 1.0


def field_at(spec: object, path: str) -> Any:
    for name in path.split("."):
        spec = getattr(spec, name, None)
    return spec


def label_of(attention: str, options: Mapping[str, Value]) -> str:
    texts = (f"{path}={value}".removeprefix(f"{attention}.") for path, value in options.items())
    text = ",".join(sorted(texts))
    return f"{attention}[{text}]" if text else attention


def flags_of(row: str, attention: str) -> str:
    # The options of `harness run` that make a row, whose attention a user types like that.
    options = row.partition("[")[2].removesuffix("]").split(",")
    owner = "" if "+" in attention else f"{attention.rpartition(':')[2]}."
    flags = [f"--set {owner}{text}".replace(f"--set {owner}match=", "--match ")
             for text in options if text]  # fmt: skip
    return " ".join([f"--attention {shlex.quote(attention)}", *flags])


def unmatched(row: str) -> str:
    return re.sub(r"\[match=parameters\]|match=parameters,|,match=parameters", "", row)


def by_option(options: Mapping[str, Mapping[str, Value]]) -> dict[str, Value]:
    return {f"{v}.{name}": value for v, of in options.items() for name, value in of.items()}
