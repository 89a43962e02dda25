"""The spectra of the attention matrices of a run, layer by layer, at the weights that it kept."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from harness.records.fields import Count, Fraction, Frozen, Time
from harness.records.record import Environment
from harness.records.spec import RunSpec

Deviation = Annotated[float, Field(ge=0)]
"""A standard deviation."""

EffectiveRank = Annotated[float, Field(ge=1)]


class LayerSpectrum(Frozen):
    """The singular values of the attention matrices of one layer, over samples and heads.

    Attributes:
        variant: the attention of the layer.
        reason: why there is no spectrum; empty where there is one.
        explained: the mean share of the squared singular values in the largest r of them, for each
            r of `SpectrumRecord.ranks`.
        explained_deviation: the standard deviation of each of these over the samples.
        effective_rank: the mean of exp(H), H the entropy of the singular values as shares of their
            sum (Roy and Vetterli, 2007); None where there is no spectrum.
        effective_rank_deviation: its standard deviation over the samples.
    """

    variant: str
    reason: str = ""
    explained: tuple[Fraction, ...] = ()
    explained_deviation: tuple[Deviation, ...] = ()
    effective_rank: EffectiveRank | None = None
    effective_rank_deviation: Deviation | None = None

    @model_validator(mode="after")
    def _complete(self) -> "LayerSpectrum":
        parts = bool(self.explained), self.effective_rank is not None, not self.reason
        if len({*parts, self.effective_rank_deviation is not None}) > 1 or len(
            self.explained
        ) != len(self.explained_deviation):
            raise ValueError("a layer has either a spectrum or the reason why it has none")
        return self


class Moment(Frozen):
    """The layers at one step of training, first to last."""

    step: Annotated[int, Field(ge=0)]
    layers: tuple[LayerSpectrum, ...]


class SpectrumRecord(Frozen):
    """The spectra of one run.

    Attributes:
        schema_version: of this class.
        spec: the specification of the run.
        samples: the most examples of dev, evenly spaced.
        ranks: numbers of singular values, ascending.
        moments: in order of steps.
        started: when the computation began.
        environment: that of the computation.
    """

    schema_version: Literal[1] = 1
    spec: RunSpec
    samples: Count
    ranks: tuple[Count, ...]
    moments: tuple[Moment, ...]
    started: Time
    environment: Environment

    @property
    def steps(self) -> list[int]:
        """The steps at which the run kept its weights."""
        return [moment.step for moment in self.moments]

    @model_validator(mode="after")
    def _aligned(self) -> "SpectrumRecord":
        steps = self.steps
        layers = [layer for moment in self.moments for layer in moment.layers]
        if not steps or steps != sorted({*steps}):
            raise ValueError("its steps are not in order")
        if any(layer.explained and len(layer.explained) != len(self.ranks) for layer in layers):
            raise ValueError("a layer has another number of values than there are ranks")
        return self
