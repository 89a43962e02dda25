"""The specification of a run: everything that determines its outcome."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from itertools import product
from operator import attrgetter
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from harness.records.fields import Count, Device, Frozen, Identified, Precision, Probability
from harness.records.models import MODELS, Model
from zoo.registry import Value

Point = Mapping[str, Value]
"""A point of a grid: the value of each tuned field, by its path."""


class Augment(Frozen):
    """The augmentation of images in training.

    Attributes:
        transform: `none`, a random `crop`, or as `deit`; see `tasks.data.images`.
        mixup: alpha of mixup (Zhang et al., 2018, arXiv 1710.09412); 0 for none.
        cutmix: alpha of CutMix (Yun et al., 2019, arXiv 1905.04899); 0 for none. With both, each
            batch has one of them.
    """

    transform: Literal["none", "crop", "deit"] = "none"
    mixup: Annotated[float, Field(ge=0)] = 0.0
    cutmix: Annotated[float, Field(ge=0)] = 0.0


class TrainSpec(Frozen):
    """The recipe of the optimiser.

    Attributes:
        batch: examples per step.
        warmup: steps in which the rate rises linearly to `lr`; it then falls linearly to about 0,
            or as `schedule` says.
        lr: highest learning rate.
        betas: the optimiser's, also accepted as text, `0.9,0.98`.
        cycle_momentum: whether beta1 falls from 0.95 to 0.85 during warm-up and rises again, in
            place of `betas[0]`: the default of PyTorch's `OneCycleLR`.
        evaluations: number of evaluations on dev, evenly spaced, the last one after the last step.
        precision: of the matrix products; parameters and optimiser state are always fp32.
        compiled: whether the model runs through `torch.compile`.
        bucket_by_length: whether a batch holds examples of similar length, padded to the longest of
            them and not to the length of the task.
        optimiser: `adamw`, or `radam` (Liu et al., 2020, arXiv 1908.03265) with decoupled decay.
        schedule: `one-cycle` as described at `warmup`, `cosine` to a hundredth of `lr`, or
            `constant`.
        clip: largest norm of the gradient of all parameters; 0 for no limit.
        best_on_test: whether test is evaluated whenever dev is, and the best score is
            recorded, as some published runs report it. It selects nothing.
        decay: what `weight_decay` applies to: `all` parameters, or only `matrices`, which excludes
            biases, norms, and the positions and class token of images.
        label_smoothing: weight of the uniform distribution in the target of the loss.
        augment: of images; the name of a transform, as `crop`, is short for it alone; None for
            none.
    """

    batch: Count
    steps: Count
    warmup: Annotated[int, Field(ge=0)]
    lr: Annotated[float, Field(gt=0)]
    betas: tuple[Probability, Probability]
    cycle_momentum: bool
    eps: Annotated[float, Field(gt=0)]
    weight_decay: Annotated[float, Field(ge=0)]
    evaluations: Count
    precision: Precision
    compiled: bool
    bucket_by_length: bool = False
    optimiser: Literal["adamw", "radam"] = "adamw"
    schedule: Literal["one-cycle", "cosine", "constant"] = "one-cycle"
    clip: Annotated[float, Field(ge=0)] = 0.0
    best_on_test: bool = False
    decay: Literal["all", "matrices"] = "all"
    label_smoothing: Probability = 0.0
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

    @model_validator(mode="after")
    def _check_combinations(self) -> "TrainSpec":
        if self.warmup > self.steps:
            raise ValueError(
                f"warmup={self.warmup} exceeds steps={self.steps}; lower warmup or raise steps"
            )
        if self.schedule in ("constant", "cosine") and self.cycle_momentum:
            raise ValueError(f"schedule={self.schedule} needs cycle_momentum=false")
        if self.augment and (self.augment.mixup or self.augment.cutmix) and self.batch % 2:
            raise ValueError(
                f"batch={self.batch} is odd; mixup and cutmix pair images; give an even batch"
            )
        if self.compiled and self.bucket_by_length:
            raise ValueError(
                "bucket_by_length=true gives batches of many lengths, and a compiled model is "
                "compiled again for each; use either"
            )
        return self


class TaskSpec(Frozen):
    """A task, every option of it, and its data.

    Attributes:
        key: `name@version[option=value,...]`, with the options that differ from the defaults.
        options: every option of the task.
        block: 0, which is part of the identities of published runs.
        digests: SHA-256 of each split, by its name; see `tasks.contract.Split.digest`.
    """

    name: str
    key: str
    options: dict[str, Value]
    block: Literal[0] = 0
    digests: dict[str, str]

    @property
    def file_name(self) -> str:
        """The name of the file of its baselines, without suffix: one for each key and digest."""
        text = json.dumps([self.key, self.digests], sort_keys=True)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


class TuningSpec(Frozen):
    """The grid from which fields of a run were chosen.

    Attributes:
        grid: the values of each tuned field of `model` and `train`, by its path, as `train.lr`. The
            points of the grid are the product of all values.
        recipe: the value of each of these fields in the recipe of the run.
        role: `trial` for a run at one point, whose score on dev chooses and whose score on
            test is not used; `final` for a run at the chosen point.
    """

    grid: dict[str, tuple[Value, ...]]
    recipe: dict[str, Value]
    role: Literal["trial", "final"]

    @property
    def points(self) -> list[Point]:
        """Every point of the grid, in order."""
        values = product(*self.grid.values())
        return [dict(zip(self.grid, point, strict=True)) for point in values]

    @model_validator(mode="after")
    def _check_fields(self) -> "TuningSpec":
        fields = {
            "model": {name for kind in MODELS.values() for name in kind.model_fields},
            "train": {*TrainSpec.model_fields},
        }
        for path in self.grid.keys() | self.recipe.keys():
            owner, _, name = path.partition(".")
            if name not in fields.get(owner, {}):
                raise ValueError(f"{path!r} is no field of model or train")
        if self.grid.keys() != self.recipe.keys() or not all(self.grid.values()):
            raise ValueError("each tuned field needs a value in the recipe and values in the grid")
        return self


class RunSpec(Identified):
    """One run: one variant, one task, one recipe, one seed, one kind of device.

    Attributes:
        attention: the variants as text: `A`, or `A+B` for layers of A with a last layer of B.
        layers: the variant of each layer, first to last.
        options: the options of each variant that differ from its defaults, by variant.
        budget: name of the recipe that `model` and `train` came from.
        overrides: fields of `model` and `train` and options of variants that differ from the
            recipe, as `train.lr`, with their values; `model`, `train` and `options` hold them too.
        device: the kind of device; part of the identity because cost is part of the outcome.
        seed: determines initial parameters, data order and all other random numbers of the run.
        tuning: the grid that the run belongs to; None for a run of one recipe.
        match: what the feed-forward width of each variant makes equal to softmax's, if
            anything.
    """

    attention: str
    layers: Annotated[tuple[str, ...], Field(min_length=1)]
    options: dict[str, dict[str, Value]]
    task: TaskSpec
    budget: str
    overrides: dict[str, Value]
    model: Model
    train: TrainSpec
    device: Device
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    tuning: TuningSpec | None = None
    match: Literal["parameters"] | None = None

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants of the layers, each once."""
        return tuple(dict.fromkeys(self.layers))

    @property
    def file_name(self) -> str:
        """The name of its files in a store, without suffix."""
        # A recipe may be `SUITE@VERSION/QUESTION`, and the attention `(A+B)*2`.
        attention, recipe = (re.sub(r"[/*()]", "-", text) for text in (self.attention, self.budget))
        return f"{self.task.name}-{attention}-{recipe}-{self.device}-s{self.seed}-{self.id}"

    @property
    def point(self) -> Point:
        """The point of the grid that the run is at; empty for a run of one recipe."""
        return {path: attrgetter(path)(self) for path in self.tuning.grid} if self.tuning else {}

    @property
    def distance(self) -> float:
        """The distance of its grid point from the recipe: the sum over the tuned fields.

        For two positive numbers the absolute logarithm of their ratio, for other values 0 or 1.
        """
        recipe = self.tuning.recipe if self.tuning else {}
        return float(sum(_difference(value, recipe[path]) for path, value in self.point.items()))

    @model_validator(mode="after")
    def _agree(self) -> "RunSpec":
        if len(self.layers) != self.model.depth:
            raise ValueError(f"{len(self.layers)} layers are not depth={self.model.depth}")
        return self


def _difference(value: Value, other: Value) -> float:
    if value == other:
        return 0.0
    if isinstance(value, int | float) and isinstance(other, int | float) and min(value, other) > 0:
        return abs(math.log(value / other))
    return 1.0


def field_at(spec: object, path: str) -> Any:
    """The field of a specification by its path, as `train.augment.mixup`; None where it has none.

    A kind of model, for example, has no field of the other kinds.
    """
    for name in path.split("."):
        spec = getattr(spec, name, None)
    return spec


def label_of(attention: str, options: Mapping[str, Value]) -> str:
    """A variant with options by `VARIANT.OPTION`, as rows are called: `primal[rank=8]`."""
    texts = (f"{path}={value}".removeprefix(f"{attention}.") for path, value in options.items())
    text = ",".join(sorted(texts))
    return f"{attention}[{text}]" if text else attention


def row_of(attention: str, overrides: Mapping[str, Value]) -> str:
    """The label of a variant with its options among `overrides`, which model and train have too."""
    return label_of(attention, of_variants(overrides))


def of_variants(overrides: Mapping[str, Value]) -> dict[str, Value]:
    """The overrides that are options of variants, and not fields of model or train."""
    fields = overrides.items()
    return {path: v for path, v in fields if path.partition(".")[0] not in ("model", "train")}


def by_option(options: Mapping[str, Mapping[str, Value]]) -> dict[str, Value]:
    """Options of variants by `VARIANT.OPTION`."""
    return {f"{v}.{name}": value for v, of in options.items() for name, value in of.items()}
