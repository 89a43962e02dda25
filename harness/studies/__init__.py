"""Studies: each is one module of this package, with what it computes, its table and its plot.

The list of studies is the list of modules; each is imported when it is called.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple, TypeVar

from zoo.registry import UserError, Value, unknown

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from harness.records.results import Row
    from harness.records.store import Store

Positive = Annotated[int, {"min": 1}]


class Table(NamedTuple):
    """A table that is computed by `rows` and stored at once, as the record of a `subject`.

    A result with other `options`, or of before `since`, the start of its run, is not used.
    """

    subject: str
    options: Mapping[str, Value]
    rows: "Callable[[], Iterable[Row]]"
    since: str = ""


class Section(NamedTuple):
    """A section of the page: a heading, plain text, and a table.

    A value is a text, a number, or a mean with its smallest and its largest value.
    """

    title: str
    table: "pd.DataFrame"
    text: str = ""


class Panel(NamedTuple):
    """A panel of the figure; `draw` labels what the legend lists, `entries` lines at most."""

    title: str
    draw: "Callable[[Axes], object]"
    entries: int = 0


@dataclass(frozen=True, kw_only=True)
class Study(ABC):
    """A study: its fields are the options of its command, and its docstring is their help.

    Attributes:
        rerun: Compute again what the store has.
    """

    store: Path = Path("runs")
    rerun: bool = False
    name: ClassVar[str]
    head: ClassVar[str]
    """The beginning of its page, as Markdown."""

    def tables(self, store: "Store") -> Iterable[Table]:
        """The tables that are computed."""
        return ()

    @classmethod
    def frame(cls, folder: Path) -> "pd.DataFrame":
        """The rows of all results in a store; empty without any."""
        from harness.records.results import frame_of
        from harness.records.store import StudyStore

        records, _ = StudyStore.within(folder).read()
        return frame_of(record for record in records if record.spec.study == cls.name)

    @classmethod
    @abstractmethod
    def sections(cls, frame: "pd.DataFrame") -> Iterable[Section]:
        """The sections of the page of such a frame."""

    @classmethod
    @abstractmethod
    def panels(cls, frame: "pd.DataFrame") -> Iterable[Panel]:
        """The panels of the figure of such a frame."""

    def options(self) -> dict[str, Value]:
        """The values of the fields of the study."""
        names = [field.name for field in fields(self) if field not in fields(Study)]
        return {name: getattr(self, name) for name in names}


STUDIES: dict[str, type[Study]] = {}
"""The studies of the modules that are imported."""

Class = TypeVar("Class", bound=type[Study])


def study(cls: Class) -> Class:
    """Register a study under the name of its module."""
    cls.name = cls.__module__.rpartition(".")[2]
    STUDIES[cls.name] = registered = dataclass(frozen=True, kw_only=True)(cls)
    return registered


def names() -> dict[str, str]:
    """Every study with its summary, the first line of its module, without an import."""
    files = sorted(Path(__path__[0]).glob("[!_]*.py"))
    return {file.stem: file.read_text("utf-8").partition("\n")[0].strip('"') for file in files}


def find(name: str) -> type[Study]:
    """The study of that name."""
    if name not in (summaries := names()):
        raise UserError(unknown("study", name, summaries))
    import_module(f"{__name__}.{name}")
    return STUDIES[name]
