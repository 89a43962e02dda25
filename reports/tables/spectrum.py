"""Groups spectra of attention matrices by setting: a line for each layer of each run."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from harness.records.spectrum import LayerSpectrum, SpectrumRecord
from reports.tables.boards import differences, grouped
from reports.tables.rows import group_by
from reports.tables.settings import chosen_text, setting
from reports.text import csv_text

HEADINGS = (
    "setting", "attention", "seed", "step", "layer", "variant", "rank", "explained_variance",
    "explained_variance_deviation", "effective_rank", "effective_rank_deviation", "reason",
)  # fmt: skip


class Line(NamedTuple):
    """One layer of one run through its training; layers are counted from 1."""

    record: SpectrumRecord
    number: int

    @property
    def steps(self) -> list[int]:
        """The steps of whose weights there is a spectrum."""
        return self.record.steps

    @property
    def layers(self) -> list[LayerSpectrum]:
        """The layer at each of these steps."""
        return [moment.layers[self.number - 1] for moment in self.record.moments]

    @property
    def last(self) -> LayerSpectrum:
        """The layer after training."""
        return self.layers[-1]

    def rank_of(self, share: float) -> int:
        """The smallest rank of the record at which the mean explained variance is that share."""
        pairs = zip(self.record.ranks, self.last.explained, strict=True)
        return next((rank for rank, value in pairs if value >= share), self.record.ranks[-1])


class Group(NamedTuple):
    """The runs of one task, recipe and machine, and their layers.

    Attributes:
        title: as plain text.
        lines: by run and layer.
        runs: the name of each run, by the identity of its specification.
    """

    title: str
    lines: tuple[Line, ...]
    runs: Mapping[str, str]

    def label(self, line: Line) -> str:
        """The run and the layer."""
        return f"{self.runs[line.record.spec.id]}, layer {line.number}"


def groups(records: Iterable[SpectrumRecord]) -> list[Group]:
    """The groups in order of task, budget and machine, runs by name."""
    made = []
    for title, _, same in grouped(records, lambda record: setting(record.spec)):
        names = _names(same)
        same.sort(key=lambda record: (names[record.spec.id], record.spec.seed))
        lines = tuple(line for record in same for line in _lines(record))
        made.append(Group(title, lines, names))
    return made


def _names(records: Sequence[SpectrumRecord]) -> dict[str, str]:
    """The name of each run: variant, what was chosen for it, and what runs differ in."""
    names, several = {}, len({record.spec.seed for record in records}) > 1
    for attention, same in group_by(records, lambda record: record.spec.attention).items():
        specs = [record.spec for record in same]
        options = differences([one.options for one in specs], [one.overrides for one in specs])
        for record, differing in zip(same, options, strict=True):
            seed = f" seed {record.spec.seed}" if several else ""
            names[record.spec.id] = f"{attention}{differing}{chosen_text(record.spec)}{seed}"
    return names


def as_csv(all_groups: Sequence[Group]) -> str:
    """A line for each rank of each layer at each step, at full precision."""
    return csv_text(
        HEADINGS,
        (row for group in all_groups for line in group.lines for row in _rows(group, line)),
    )


def _lines(record: SpectrumRecord) -> Iterator[Line]:
    for number in range(1, len(record.moments[-1].layers) + 1):
        yield Line(record, number)


def _rows(group: Group, line: Line) -> Iterator[dict[str, object]]:
    spec = line.record.spec
    for step, layer in zip(line.steps, line.layers, strict=True):
        start = [group.title, spec.attention, spec.seed, step, line.number, layer.variant]
        end = [layer.effective_rank, layer.effective_rank_deviation, layer.reason]
        values = zip(line.record.ranks, layer.explained, layer.explained_deviation, strict=False)
        for part in values if layer.explained else [(None, None, None)]:
            yield dict(zip(HEADINGS, [*start, *part, *end], strict=True))
