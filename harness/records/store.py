"""A folder of records, one JSON file each, written atomically."""

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import ValidationError

from harness.records.baselines import FOLDER, ShallowStudy, TaskBaselines
from harness.records.certificate import Certificate
from harness.records.cost import CostRecord, CostSpec
from harness.records.fields import Frozen
from harness.records.files import (
    remove_partial,
    require_writable,
    save,
    split_checksum,
    with_checksum,
)
from harness.records.locks import Lock, Locks
from harness.records.record import FINAL, Record
from harness.records.spec import RunSpec, TaskSpec
from harness.records.study import StudyRecord, StudySpec
from zoo.registry import UserError, in_one_line

Spec = RunSpec | CostSpec | StudySpec | TaskSpec
StoreT = TypeVar("StoreT", bound="RecordStore[Any]")
RecordT = TypeVar("RecordT", bound=Frozen)


def require_folder(store: Path) -> Path:
    """Return the folder of a store; raise `UserError` if it is none."""
    if not store.is_dir():
        remedy = f"harness run --attention primal --store {shlex.quote(str(store))}"
        raise UserError(f"store {str(store)!r} is not a folder; make records with: {remedy}")
    return store


class Broken(NamedTuple):
    """A file in a store that is not a record, and the reason in one line."""

    path: Path
    reason: str


class RecordStore(Generic[RecordT]):
    """A folder of records of one kind.

    Attributes:
        kind: their class.
        subfolder: of the folder of runs, where these records are.
        remedy: for a file that is not a record; `name` is its name, `store` the folder of runs.
    """

    kind: type[RecordT]
    subfolder = ""
    remedy = "move it away to run this again"

    def __init__(self, folder: Path) -> None:
        """Use `folder`, which is created by the first write."""
        self.folder = folder

    @classmethod
    def within(cls: type[StoreT], folder: Path) -> StoreT:
        """The records of this kind of a store whose runs are in `folder`."""
        return cls(folder / cls.subfolder)

    @property
    def locks(self) -> Locks:
        """The locks of its records."""
        return Locks(self.folder)

    def require_writable(self) -> None:
        """Create the folder if it does not exist.

        Raises:
            UserError: it cannot be written.
        """
        require_writable(self.folder, f"store {str(self.folder)!r}", "give another --store")

    def path(self, spec: Spec) -> Path:
        """The file of the record of `spec`."""
        return self.folder / f"{spec.file_name}.json"

    def path_of(self, record: Any) -> Path:
        """The file of a record."""
        return self.path(record.spec)

    def find(self, spec: Spec) -> RecordT | None:
        """The record of `spec`, if the store holds one.

        Raises:
            UserError: the file of that name is not a record, or cannot be read.
        """
        path = self.path(spec)
        try:
            path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise UserError(
                f"{path} cannot be read ({error.strerror}); give another --store"
            ) from error
        return self.require(path.name)

    def require(self, name: str) -> RecordT:
        """The record of the file `name` of the folder.

        Raises:
            UserError: it is not a record, or cannot be read.
        """
        content = self.read_file(name)
        if isinstance(content, Broken):
            reason = content.reason.removesuffix("; move it away")
            remedy = self.remedy.format(name=content.path.stem, store=self.folder.parent)
            raise UserError(f"{content.path} is not a record ({reason}); {remedy}")
        return content

    def write(self, record: RecordT) -> Path:
        """Write the record atomically, and return its path.

        Raises:
            UserError: it cannot be written.
        """
        text = with_checksum(record.model_dump_json(indent=1) + "\n")
        return save(self.path_of(record), text.encode(), "record")

    def remove_partial_files(self) -> None:
        """Delete the files of processes that were killed while writing."""
        remove_partial(self.folder)

    def read(
        self, shorten: Callable[[RecordT], RecordT] = lambda record: record
    ) -> tuple[list[RecordT], list[Broken]]:
        """Every record, in order of file name, and every JSON file that is not a record.

        Of each record is kept what `shorten` returns.

        Raises:
            UserError: the folder cannot be listed.
        """
        records: list[RecordT] = []
        broken: list[Broken] = []
        for name in self.files():
            content = self.read_file(name)
            if isinstance(content, Broken):
                broken.append(content)
            else:
                records.append(shorten(content))
        return records, broken

    def read_whole(self) -> list[RecordT]:
        """Every record, in order of file name.

        Raises:
            UserError: a file is not a record, or the folder cannot be listed.
        """
        return [self.require(name) for name in self.files()]

    def files(self) -> dict[str, os.stat_result]:
        """The time and size of every JSON file, by its name, sorted; none where no folder is.

        Raises:
            UserError: the folder cannot be listed.
        """
        found: dict[str, os.stat_result] = {}
        try:
            # Not `Path.glob`, for which a folder that may not be listed is empty.
            with os.scandir(self.folder) if self.folder.is_dir() else nullcontext(()) as entries:
                for entry in entries:
                    if entry.name.endswith(".json"):
                        dangles = entry.is_symlink() and not Path(entry.path).exists()
                        with suppress(FileNotFoundError):  # deleted since
                            found[entry.name] = entry.stat(follow_symlinks=not dangles)
        except OSError as error:
            raise UserError(
                f"store {str(self.folder)!r} cannot be listed ({error.strerror}); change its "
                "permissions, or give another --store"
            ) from error
        return dict(sorted(found.items()))

    def read_file(self, name: str) -> RecordT | Broken:
        """The record of the file `name` of the folder, or why it is none."""
        path = self.folder / name
        if not path.is_file():
            return Broken(path, "it is not a regular file")
        try:
            text, problem = split_checksum(path.read_text("utf-8"))
            # Strict: otherwise true is a number.
            record = self.kind.model_validate_json(text, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            if where == "schema_version":
                return Broken(path, "it is of another schema; run it again, or move it away")
            return Broken(path, f"{where}: {first['msg'].removeprefix('Value error, ')}")
        except (OSError, UnicodeDecodeError) as error:
            return Broken(path, in_one_line(error))
        expected = self.path_of(record).name
        if path.name != expected:
            return Broken(path, f"its specification belongs in {expected}; move it away")
        return Broken(path, f"{problem}; move it away") if problem else record


class Store(RecordStore[Record]):
    """The records of runs."""

    kind = Record

    def weights(self, spec: RunSpec) -> Path:
        """The folder of the weights that a run of `spec` keeps."""
        return self.folder / "weights" / spec.file_name

    def checkpoint(self, spec: RunSpec) -> Path:
        """The file of the checkpoint of an unfinished run of `spec`."""
        return self.path(spec).with_suffix(".checkpoint")

    @contextmanager
    def locked(self, spec: RunSpec, threads: int) -> Iterator[Lock | None]:
        """The lock of a run with that many threads; None where another process holds it.

        The state of the run is kept where it has a checkpoint to continue from.

        Raises:
            UserError: the file system has no locks, or the folder cannot be written.
        """
        lock = self.locks.acquire(spec.file_name, threads=threads, steps=spec.train.steps)
        try:
            yield lock
        finally:
            if lock is not None:
                lock.release(keep_state=self.checkpoint(spec).exists())

    def remove_leftovers(self) -> None:
        """Delete what killed processes have left, and what no run will be continued from.

        These are partial files, checkpoints of finished runs, and states of runs without a
        checkpoint. Nothing of a run that a process computes is deleted.
        """
        self.remove_partial_files()
        saved = [path.stem for path in self.folder.glob("*.checkpoint")]
        for name in {*saved, *self.locks.states()}:
            checkpoint = self.folder / f"{name}.checkpoint"
            with self.locks.unused(name) as unused:
                if not unused:
                    continue
                record = self.read_file(f"{name}.json")
                final = isinstance(record, Record) and record.status in FINAL
                if final and not checkpoint.is_dir():
                    checkpoint.unlink(missing_ok=True)
                if not checkpoint.exists():
                    self.locks.forget(name)


class CostStore(RecordStore[CostRecord]):
    """The records of cost sweeps."""

    kind, subfolder = CostRecord, "cost"
    remedy = "move it away to measure this again"


class StudyStore(RecordStore[StudyRecord]):
    """The records of studies, by study and subject."""

    kind, subfolder = StudyRecord, "studies"


class BaselineStore(RecordStore[TaskBaselines]):
    """The baselines of tasks."""

    kind, subfolder = TaskBaselines, FOLDER


class CertificateStore(RecordStore[Certificate]):
    """The certificates of variants."""

    kind, subfolder = Certificate, "certificates"
    remedy = "delete it, and run: harness check {name} --store {store}"

    def path_of(self, record: Certificate) -> Path:
        """The file of a certificate, one for each variant."""
        return self.folder / f"{record.variant}.json"

    def by_variant(self) -> dict[str, Certificate]:
        """The certificate of each variant, in order; see `read_whole`."""
        return {record.variant: record for record in self.read_whole()}


class ShallowStore(RecordStore[ShallowStudy]):
    """The studies of shallow models."""

    kind, subfolder = ShallowStudy, "shallow"
    remedy = "move it away, and fit the models again"

    def path_of(self, record: ShallowStudy) -> Path:
        """The file of a study, one for each task."""
        return self.folder / f"{record.name}.json"
