"""Pages made from records: file contents by name. Nothing is written to disk here."""

from collections.abc import Iterable, Sequence

from harness.records.approximation import Approximation
from harness.records.ksvd import KsvdCurve
from harness.records.record import Record
from harness.records.spectrum import SpectrumRecord
from reports.pages.approximation import approximation
from reports.pages.ksvd import ksvd
from reports.pages.locality import locality
from reports.pages.spectrum import spectrum_page
from reports.tables.approximation import as_csv as approximation_csv
from reports.tables.ksvd import as_csv as ksvd_csv
from reports.tables.locality import studies
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
