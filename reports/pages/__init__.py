"""Pages made from records: file contents by name. Nothing is written to disk here."""

from collections.abc import Iterable, Sequence

from harness.records.approximation import Approximation
from harness.records.cost import CostRecord
from harness.records.ksvd import KsvdCurve
from harness.records.record import Record
from harness.records.spectrum import SpectrumRecord
from reports.pages.approximation import approximation
from reports.pages.cost import cost_page
from reports.pages.ksvd import ksvd
from reports.pages.locality import locality
from reports.pages.reproduced_results import results_page
from reports.pages.reproduction import reproduction
from reports.pages.spectrum import spectrum_page
from reports.tables.approximation import as_csv as approximation_csv
from reports.tables.cost import as_csv as cost_csv
from reports.tables.cost import sweeps
from reports.tables.ksvd import as_csv as ksvd_csv
from reports.tables.locality import studies
from reports.tables.reproduced_results import Results
from reports.tables.reproduced_results import as_csv as results_csv
from reports.tables.reproduction import Entry
from reports.tables.reproduction import as_csv as reproduction_csv
from reports.tables.spectrum import as_csv as spectrum_csv
from reports.tables.spectrum import groups
from reports.text import digest


def locality_files(records: Iterable[Record]) -> dict[str, bytes]:
    """What `locality.md`, `locality.png` and `locality.svg` hold, by name.

    Raises:
        ValueError: no records compare windows or shuffled blocks.
    """
    all_studies = studies(records)
    if not all_studies:
        raise ValueError(
            "no runs with windows or shuffled blocks; make some: harness study locality TASK"
        )
    from reports.figures.locality import locality_figure

    return {"locality.md": locality(all_studies).encode(), **locality_figure(all_studies)}


def spectrum_files(records: Iterable[SpectrumRecord]) -> dict[str, bytes]:
    """What `spectrum.md`, `spectrum.csv`, `spectrum.png` and `spectrum.svg` hold, by name."""
    from reports.figures.spectrum import spectrum_figure

    all_groups = groups(records)
    table = spectrum_csv(all_groups).encode()
    return {
        "spectrum.md": spectrum_page(all_groups).encode(),
        "spectrum.csv": table,
        **spectrum_figure(all_groups, digest("spectrum.csv", table)),
    }


def approximation_files(all_errors: Sequence[Approximation]) -> dict[str, bytes]:
    """What `approximation.md`, `.csv`, `.png` and `.svg` hold, by name."""
    from reports.figures.approximation import approximation_figure

    table = approximation_csv(all_errors).encode()
    return {
        "approximation.md": approximation(all_errors).encode(),
        "approximation.csv": table,
        **approximation_figure(all_errors, digest("approximation.csv", table)),
    }


def ksvd_files(curves: Sequence[KsvdCurve]) -> dict[str, bytes]:
    """What `ksvd.md`, `ksvd.csv`, `ksvd.png` and `ksvd.svg` hold, by name."""
    from reports.figures.ksvd import ksvd_figure

    table = ksvd_csv(curves).encode()
    return {
        "ksvd.md": ksvd(curves).encode(),
        "ksvd.csv": table,
        **ksvd_figure(curves, digest("ksvd.csv", table)),
    }


def cost_files(records: Iterable[CostRecord]) -> dict[str, bytes]:
    """What `cost.md`, `cost.csv`, `cost.png` and `cost.svg` hold, by name; none without records."""
    all_sweeps = sweeps(records)
    if not all_sweeps:
        return {}
    from reports.figures.cost import cost_figure

    table = cost_csv(all_sweeps).encode()
    return {
        "cost.md": cost_page(all_sweeps).encode(),
        "cost.csv": table,
        **cost_figure(all_sweeps, digest("cost.csv", table)),
    }


def reproduction_files(entries: Sequence[Entry], budget: str) -> dict[str, bytes]:
    """What `table3.md` and `table3.csv` hold, by name; `budget` gave the shapes."""
    return {
        "table3.md": reproduction(entries, budget).encode(),
        "table3.csv": reproduction_csv(entries).encode(),
    }


def results_files(results: Results) -> dict[str, bytes]:
    """What `tableN.md`, `tableN.csv`, `tableN.png` and `tableN.svg` hold, by name."""
    from reports.figures.reproduced_results import results_figure

    name = f"table{results.table}"
    table = results_csv(results).encode()
    return {
        f"{name}.md": results_page(results).encode(),
        f"{name}.csv": table,
        **results_figure(results, name, digest(f"{name}.csv", table)),
    }
