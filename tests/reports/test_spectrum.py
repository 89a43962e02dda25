"""Spectra by setting: groups, and names of the runs in them."""

import pytest

from harness.records.spectrum import LayerSpectrum, Moment, SpectrumRecord
from reports.pages import spectrum_files
from reports.tables.spectrum import groups


@pytest.fixture
def spectrum(record):
    """The spectra of one layer of a run; its arguments are those of the record of the run."""

    def make(attention="primal", **given) -> SpectrumRecord:
        run = record(attention, **given)
        layer = LayerSpectrum(
            variant=attention, explained=(0.5, 1.0), explained_deviation=(0.1, 0.0),
            effective_rank=1.5, effective_rank_deviation=0.2,
        )  # fmt: skip
        return SpectrumRecord(
            spec=run.spec, samples=8, ranks=(1, 2), moments=(Moment(step=3, layers=(layer,)),),
            started=run.started, environment=run.environment,
        )  # fmt: skip

    return make


def labels(records):
    return [[group.label(line) for line in group.lines] for group in groups(records)]


def test_runs_are_named_by_the_options_and_seeds_that_differ(spectrum):
    wide, narrow = ({"primal": {"rank": rank, "eta": 0.1}} for rank in (30, 20))
    same = [spectrum(options=wide), spectrum("softmax")]
    assert labels(same) == [["primal, layer 1", "softmax, layer 1"]]
    assert labels([*same, spectrum(options=narrow, seed=1)]) == [
        ["primal (rank=20) seed 1, layer 1", "primal (rank=30) seed 0, layer 1",
         "softmax seed 0, layer 1"]
    ]  # fmt: skip


def test_runs_of_other_recipes_are_in_other_groups(spectrum):
    made = groups([spectrum(), spectrum(budget="laptop"), spectrum(train={"steps": 7000})])
    assert len({group.title for group in made}) == 3


def test_the_page_and_the_table_name_every_run(spectrum):
    files = spectrum_files([spectrum(), spectrum(seed=1)])
    assert "| primal seed 1, layer 1 | primal | 1 | 2 | 2 | 1.5 ± 0.2 | 1.5 | 3 |" in (
        files["spectrum.md"].decode()
    )
    lines = files["spectrum.csv"].decode().splitlines()
    assert len(lines) == 1 + 2 * 2 and ",primal,0,3,1,primal,1,0.5,0.1," in lines[1]
