"""A folder of records, one JSON file each, written atomically."""

import shlex
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json

from harness.records.baselines import FOLDER, ShallowStudy, TaskBaselines
from harness.records.certificate import Certificate
from harness.records.cost import CostRecord, CostSpec
from harness.records.fields import Frozen
from harness.records.files import (
    Text,
    find_line,
    read_file,
    read_lines,
    remove_partial,
    require_writable,
    save,
    usable,
    with_checksum,
)
from harness.records.locks import Lock, Locks
from harness.records.record import Record
from harness.records.spec import Question, RunSpec, TaskSpec
from harness.records.study import StudyRecord, StudySpec
from zoo.registry import UserError, uncollected

Spec = RunSpec | CostSpec | StudySpec | TaskSpec
StoreT = TypeVar("StoreT", bound="RecordStore[Any]")
RecordT = TypeVar("RecordT", bound=Frozen)
KindT = TypeVar("KindT", bound=BaseModel)


def require_folder(store: Path) -> Path:
    """Return the folder of a store; raise `UserError` if it is none."""
    with usable(f"store {str(store)[:99]!r}", "read", "give another --store"):
        is_file, is_folder = store.is_file(), store.is_dir()
    if is_file:
        raise UserError(f"store {str(store)!r} is a file; give a folder: --store FOLDER")
    if not is_folder:
        remedy = f"harness run --attention primal --store {shlex.quote(str(store))}"
        raise UserError(f"store {str(store)!r} is not a folder; make records with: {remedy}")
    return store


NO_PARTS = {name: {} for name in ("losses", "groups")}  # The defaults of a point of a curve


class Broken(NamedTuple):
    path: Path
    reason: str


class RecordStore(Generic[RecordT]):
    """The records of one kind of a store, one JSON file each, or published as JSON lines.

    A record that is a file counts before a line of the same name; see `harness.records.files`.

    Attributes:
        tag: the kind of their lines.
        file: of their lines; a run has the file of its row.
        remedy: for a file that is not a record; `name` is its name, `store` the store.
    """

    kind: type[RecordT]
    tag: str
    file = ""
    subfolder = ""
    remedy = "move it away to run this again"

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        # `folder` is created by the first write; `root` is the store with the lines.
        self.folder, self.root = folder, root or folder

    @classmethod
    def within(cls: type[StoreT], folder: Path) -> StoreT:
        return cls(folder / cls.subfolder, folder)

    @property
    def locks(self) -> Locks:
        return Locks(self.folder)

    def require_writable(self) -> None:
        require_writable(self.folder, f"store {str(self.folder)!r}", "give another --store")

    def name_of(self, record: Any) -> str:
        return record.spec.file_name

    def path(self, spec: Spec) -> Path:
        return self.folder / f"{spec.file_name}.json"

    def find(self, spec: Spec) -> RecordT | None:
        path = self.path(spec)
        with usable(path, "read", "give another --store"):
            try:
                path.lstat()
            except (FileNotFoundError, NotADirectoryError):
                if self._line(spec.file_name) is None:
                    return None
        return self.require(spec.file_name)

    def require(self, name: str) -> RecordT:
        return self._required(name, self.read_one(name))

    def _required(self, name: str, found: RecordT | Broken) -> RecordT:
        if isinstance(found, Broken):
            reason = found.reason.removesuffix("; move it away")
            remedy = self.remedy.format(name=name, store=self.root)
            raise UserError(f"{found.path} is not a record ({reason}); {remedy}")
        return found

    def write(self, record: RecordT) -> Path:
        text = with_checksum(record.model_dump_json(indent=1) + "\n")
        return save(self.folder / f"{self.name_of(record)}.json", text.encode(), "record")

    def remove_partial_files(self) -> None:
        remove_partial(self.folder)

    def each(self, *, curves: bool = True) -> Iterator[RecordT | Broken]:
        # Without `curves`, runs have the points of `Record.thinned()` alone.
        for entry in self.entries().values():
            yield self.parse(entry, curves=curves)

    def read(self, *, curves: bool = True) -> tuple[list[RecordT], list[Broken]]:
        with uncollected():
            found = [*self.each(curves=curves)]
        broken = [each for each in found if isinstance(each, Broken)]
        return [each for each in found if not isinstance(each, Broken)], broken

    def read_whole(self) -> list[RecordT]:
        return [self._required(name, self.parse(at)) for name, at in self.entries().items()]

    def entries(self) -> dict[str, Path | Text]:
        found: dict[str, Path | Text] = {**self._lines()}
        with self._listed():
            # Not `Path.glob`, for which a folder that may not be listed is empty.
            files = self.folder.iterdir() if self.folder.is_dir() else ()
            found |= {file.stem: file for file in files if file.suffix == ".json"}
        return {name: found[name] for name in sorted(found, key=lambda name: f"{name}.json")}

    def _lines(self) -> dict[str, Text]:
        found: dict[str, Text] = {}
        with self._listed():
            for line in read_lines(self.root):
                earlier = found.get(line.name)
                if line.kind != self.tag:
                    # The kind may be what was edited.
                    if line.problem and self.tag == Store.tag:
                        found[f"{line.file} {line.line}"] = line
                    continue
                if earlier and earlier.text != line.text:
                    problem = f"line {line.line} of {line.file} has its name and other content"
                    found[f"{earlier.file} {earlier.line}"] = earlier._replace(problem=problem)
                found[line.name] = line
        return found

    def _line(self, name: str) -> Text | None:
        with self._listed():
            return find_line(self.root, self.tag, name)

    def _listed(self) -> AbstractContextManager[None]:
        remedy = "change its permissions, or give another --store"
        return usable(f"store {str(self.folder)!r}", "listed", remedy)

    def read_one(self, name: str) -> RecordT | Broken:
        path = self.folder / f"{name}.json"
        line = None if path.exists() or path.is_symlink() else self._line(name)
        return self.parse(line or path)

    def parse(self, entry: Path | Text, *, curves: bool = True) -> RecordT | Broken:
        found = entry if isinstance(entry, Text) else read_file(entry, self.tag)
        record = parse(found if curves else thinned(found), self.kind)
        if isinstance(record, Broken) or found.name == self.name_of(record):
            return record
        return _broken(
            found, f"its specification belongs in {self.name_of(record)}.json; move it away"
        )


def thinned(found: Text) -> Text:
    # The points are most of a record, and are not validated.
    try:
        tree = from_json(found.text)
        *points, last = tree["curve"]
        # pydantic would copy the default of each point deeply.
        kept = [{**NO_PARTS, **p} for p in (*points, last) if p is last or p.get("dev") is not None]
    except (AttributeError, LookupError, TypeError, ValueError):
        return found  # it has no curve, or is no record
    return found._replace(text=to_json({**tree, "curve": kept}).decode())


def parse(found: Text, kind: type[KindT]) -> KindT | Broken:
    if found.problem and (found.line or not found.text):
        return _broken(found, f"{found.problem}; move it away")
    try:
        # Strict: otherwise true is a number.
        record = kind.model_validate_json(found.text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        if place == "schema_version":
            return _broken(found, "it is of another schema; run it again, or move it away")
        return _broken(found, f"{place}: {first['msg'].removeprefix('Value error, ')}")
    return _broken(found, f"{found.problem}; move it away") if found.problem else record


def _broken(found: Text, reason: str) -> Broken:
    return Broken(found.file, f"line {found.line}: {reason}" if found.line else reason)


class Store(RecordStore[Record]):
    kind, tag = Record, "run"

    def each(self, *, curves: bool = True) -> Iterator[Record | Broken]:
        questions = dict[str, Question]()
        for record in super().each(curves=curves):
            if isinstance(record, Record):
                question = record.spec.question
                vars(record.spec)["question"] = questions.setdefault(question.id, question)
            yield record

    def weights(self, spec: RunSpec) -> Path:
        return self.folder / "weights" / spec.file_name

    def checkpoint(self, spec: RunSpec) -> Path:
        return self.path(spec).with_suffix(".checkpoint")

    @contextmanager
    def locked(self, spec: RunSpec, threads: int) -> Iterator[Lock | None]:
        # The state stays where the run has a checkpoint.
        lock = self.locks.acquire(spec.file_name, threads=threads, steps=spec.train.steps)
        try:
            yield lock
        finally:
            if lock is not None:
                lock.release(keep_state=self.checkpoint(spec).exists())

    def remove_leftovers(self) -> None:
        # Nothing of a run that a process computes is deleted.
        self.remove_partial_files()
        saved = [path.stem for path in self.folder.glob("*.checkpoint")]
        for name in {*saved, *self.locks.states()}:
            checkpoint = self.folder / f"{name}.checkpoint"
            with self.locks.unused(name) as unused:
                if not unused:
                    continue
                record = self.read_one(name)
                final = isinstance(record, Record) and record.is_final
                if final and not checkpoint.is_dir():
                    checkpoint.unlink(missing_ok=True)
                if not checkpoint.exists():
                    self.locks.forget(name)


class CostStore(RecordStore[CostRecord]):
    kind, tag, file, subfolder = CostRecord, "cost", "costs.jsonl", "cost"
    remedy = "move it away to measure this again"


class StudyStore(RecordStore[StudyRecord]):
    kind, tag, file, subfolder = StudyRecord, "study", "studies.jsonl", "studies"


class BaselineStore(RecordStore[TaskBaselines]):
    kind, tag, file, subfolder = TaskBaselines, "baselines", "baselines.jsonl", FOLDER


class CertificateStore(RecordStore[Certificate]):
    kind, tag, file = Certificate, "certificate", "certificates.jsonl"
    subfolder = "certificates"
    remedy = "delete it, and run: harness check {name} --store {store}"

    def name_of(self, record: Certificate) -> str:
        return record.variant

    def by_variant(self) -> dict[str, Certificate]:
        return {record.variant: record for record in self.read_whole()}


class ShallowStore(RecordStore[ShallowStudy]):
    kind, tag, file, subfolder = ShallowStudy, "shallow", "baselines.jsonl", "shallow"
    remedy = "move it away, and fit the models again"

    def name_of(self, record: ShallowStudy) -> str:
        return record.name
