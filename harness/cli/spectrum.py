"""`harness study spectrum`: the singular values of the attention matrices of runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import arguments
from harness.cli.process import Answer
from harness.cli.report import read, with_warnings, within, write_pages
from zoo.registry import UserError, unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.records.record import Record
    from harness.records.spectrum import SpectrumRecord
    from harness.records.store import SpectrumStore, Store


def spectrum(
    run: Annotated[
        list[str] | None,
        typer.Argument(help="Names or paths of records; all runs with saved weights if none."),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Examples of dev, evenly spaced.")] = 8,
    store: arguments.StoreOption = Path("runs"),
    as_json: arguments.JsonOption = False,
) -> Answer:
    """Compute the spectra of the attention matrices of runs that kept their weights.

    Make such runs with: harness run --keep-checkpoints. A spectrum that the store holds with as
    many samples and for the same steps is not computed again. Writes spectrum.md, spectrum.csv,
    spectrum.png and spectrum.svg.
    """
    from harness.records.store import Store

    document = write_spectra(chosen_runs(Store(store), run or []), store, samples)
    return Answer(document if as_json else "")


def write_spectra(chosen: "Sequence[Record]", store: Path, samples: int) -> dict[str, object]:
    """Compute the spectra of runs with saved weights; write the pages of all spectra of the store.

    Returns:
        The spectra as `rows`, and the paths as `files`.

    Raises:
        UserError: a file cannot be written.
    """
    from harness.records.store import SpectrumStore, Store
    from reports import pages

    runs, spectra = Store(store), SpectrumStore.within(store)
    spectra.require_writable()
    spectra.remove_partial_files()
    records = [_spectrum(one, runs, spectra, samples) for one in chosen]
    files = pages.spectrum_files(with_warnings(spectra.read())[0])
    return {"rows": records, "files": write_pages(within(store, files))}


def chosen_runs(runs: "Store", names: "Sequence[str]") -> "list[Record]":
    """The runs of those names, or every run with saved weights.

    Raises:
        UserError: there is no such run, or it kept no weights.
    """
    from harness import weights

    records = read(runs.folder, curves=False)[0]
    by_name = {runs.name(record.spec): record for record in records}
    wanted = [Path(name).name.removesuffix(".json") for name in names]
    if unknown_names := [name for name in wanted if name not in by_name]:
        raise UserError(unknown("run", unknown_names[0], by_name))
    without = [name for name in wanted if not weights.find(runs.weights(by_name[name].spec))]
    chosen = wanted or [n for n, one in by_name.items() if weights.find(runs.weights(one.spec))]
    if without or not chosen:
        which = f"run {without[0]!r}" if without else f"no run of store {str(runs.folder)!r}"
        raise UserError(
            f"{which} has {'no ' if without else ''}saved weights; make them with: harness run "
            "--keep-checkpoints --rerun"
        )
    return [by_name[name] for name in chosen]


def _spectrum(
    run: "Record", runs: "Store", spectra: "SpectrumStore", samples: int
) -> "SpectrumRecord":
    """The record of the spectra of a run, computed unless the store has the same."""
    from harness import weights
    from harness.plan import restore
    from harness.spectrum import spectra as compute

    files, name = weights.find(runs.weights(run.spec)), runs.name(run.spec)
    existing = spectra.find(run.spec)
    same = existing and (existing.samples, existing.steps) == (samples, [*files])
    # The run may have been repeated since. Times in UTC of one format are ordered as texts are.
    if existing and same and existing.started >= run.started:
        return existing

    def announce(line: str) -> None:
        typer.echo(f"{name}: {line} of {max(files)}", err=True)

    record = compute(restore(run.spec), files, samples, announce)
    spectra.write(record)
    return record
