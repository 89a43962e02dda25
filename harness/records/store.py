"""A folder of records: found, written, locked, packed as lines, and the state of its runs."""

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from harness.records import files
from harness.records.cost import CostRecord, CostSpec
from harness.records.fields import Frozen
from harness.records.files import Text, line_of, read_lines, usable
from harness.records.locks import Lock, Locks, State
from harness.records.record import Record, origin_of
from harness.records.results import Certificate, ShallowStudy, StudyRecord, StudySpec, TaskBaselines
from harness.records.spec import RunSpec, TaskSpec
from harness.records.versions import outdated
from zoo.registry import UserError, uncollected

Spec = RunSpec | CostSpec | StudySpec | TaskSpec
StoreT = TypeVar("StoreT", bound="RecordStore[Any]")
RecordT = TypeVar("RecordT", bound=Frozen)
KindT = TypeVar("KindT", bound=BaseModel)

# Quotes inside JSON strings are escaped, so that these match keys only.
CURVE = re.compile(r'"curve":\s*\[(?=\s*\{\s*"step":)')
NEXT_POINT = re.compile(r',\s*(?=\{\s*"step":)')


def require_folder(store: Path) -> Path:
    with usable(f"store {str(store)[:99]!r}", "read", "give another --store"):
        is_file, is_folder = store.is_file(), store.is_dir()
    if is_file:
        raise UserError(f"store {str(store)!r} is a file; give a folder: --store FOLDER")
    if not is_folder:
        remedy = f"harness run --attention primal --store {shlex.quote(str(store))}"
        raise UserError(f"store {str(store)!r} is not a folder; make records with: {remedy}")
    return store


class Broken(NamedTuple):
    path: Path
    reason: str


class RecordStore(Generic[RecordT]):
    """The records of one kind in a store, one JSON file each, or published as JSON lines.

    A file overrides a line of the same name. `root` is the store with the lines; `folder`, for
    files, is created by the first write.

    Attributes:
        tag: the kind that a line names.
        file: the published file of the lines; a run has the file of its row.
        remedy: what to do with a file that is not a record.
    """

    kind: type[RecordT]
    tag: str
    file = ""
    subfolder = ""
    remedy = "move it away to run this again"

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        self.folder, self.root = folder, root or folder
        self.locks = Locks(folder)

    @classmethod
    def within(cls: type[StoreT], folder: Path) -> StoreT:
        return cls(folder / cls.subfolder, folder)

    def require_writable(self) -> None:
        files.require_writable(self.folder, f"store {str(self.folder)!r}", "give another --store")

    def name_of(self, record: Any) -> str:
        return record.spec.file_name

    def path(self, spec: Spec) -> Path:
        return self.folder / f"{spec.file_name}.json"

    def find(self, spec: Spec) -> RecordT | None:
        found = self._entry(spec.file_name)
        return None if found is None else self.require(spec.file_name, found)

    def require(self, name: str, entry: Path | Text | None = None) -> RecordT:
        found = self.parse(entry) if entry else self.read_one(name)
        if isinstance(found, Broken):
            reason = found.reason.removesuffix("; move it away")
            remedy = self.remedy.format(name=name, store=self.root)
            raise UserError(f"{found.path} is not a record ({reason}); {remedy}")
        return found

    def read_one(self, name: str) -> RecordT | Broken:
        return self.parse(self._entry(name) or self.folder / f"{name}.json")

    def write(self, record: RecordT) -> Path:
        text = files.with_checksum(record.model_dump_json(indent=1) + "\n")
        return files.save(self.folder / f"{self.name_of(record)}.json", text.encode(), "record")

    def remove_partial_files(self) -> None:
        files.remove_partial(self.folder)

    def each(self, *, curves: bool = True) -> Iterator[RecordT | Broken]:
        # Without `curves`, runs have the points of `Record.thinned()` only.
        for entry in self.entries().values():
            yield self.parse(entry, curves=curves)

    def read(self, *, curves: bool = True) -> tuple[list[RecordT], list[Broken]]:
        with uncollected():
            found = [*self.each(curves=curves)]
        broken = [each for each in found if isinstance(each, Broken)]
        return [each for each in found if not isinstance(each, Broken)], broken

    def read_whole(self) -> list[RecordT]:
        return [self.require(name, entry) for name, entry in self.entries().items()]

    def entries(self) -> dict[str, Path | Text]:
        with self._listed():
            found: dict[str, Path | Text] = {**self._lines()}
            # Not `Path.glob`, for which a folder that may not be listed is empty.
            within = self.folder.iterdir() if self.folder.is_dir() else ()
            found |= {file.stem: file for file in within if file.suffix == ".json"}
        return {name: found[name] for name in sorted(found, key=lambda name: f"{name}.json")}

    def _lines(self) -> dict[str, Text]:
        found: dict[str, Text] = {}
        for line in files.read_lines(self.root):
            earlier = found.get(line.name)
            if line.kind != self.tag:
                # The edit may have changed the kind.
                if line.problem and self.tag == Store.tag:
                    found[f"{line.file} {line.line}"] = line
                continue
            if earlier and earlier.text != line.text:
                problem = f"line {line.line} of {line.file} has its name and other content"
                found[f"{earlier.file} {earlier.line}"] = earlier._replace(problem=problem)
            found[line.name] = line
        return found

    def _entry(self, name: str) -> Path | Text | None:
        path = self.folder / f"{name}.json"
        with (
            usable(path, "read", "give another --store"),
            suppress(FileNotFoundError, NotADirectoryError),
        ):
            path.lstat()
            return path
        with self._listed():
            return files.find_line(self.root, self.tag, name)

    def _listed(self) -> AbstractContextManager[None]:
        remedy = "change its permissions, or give another --store"
        return usable(f"store {str(self.folder)!r}", "listed", remedy)

    def parse(self, entry: Path | Text, *, curves: bool = True) -> RecordT | Broken:
        found = entry if isinstance(entry, Text) else files.read_file(entry, self.tag)
        record = parse(found if curves else thinned(found), self.kind)
        if isinstance(record, Broken) or found.name == self.name_of(record):
            return record
        return _broken(
            found, f"its specification belongs in {self.name_of(record)}.json; move it away"
        )


def thinned(found: Text) -> Text:
    # As `Record.thinned`: most of a record are points, and those without a score are not parsed.
    if not (start := CURVE.search(found.text)):
        return found
    *points, rest = NEXT_POINT.split(found.text[start.end() :])
    try:
        kept = [p for p in points if '"dev"' in p and from_json(p).get("dev") is not None]
    except (AttributeError, ValueError):
        return found  # not a record
    if any("]" in point for point in points):
        return found  # a name has a bracket, or the text goes on behind the curve
    return found._replace(text=found.text[: start.end()] + ",".join([*kept, rest]))


def parse(found: Text, kind: type[KindT]) -> KindT | Broken:
    if found.problem and (found.line or not found.text):
        return _broken(found, f"{found.problem}; move it away")
    try:
        # Strict: otherwise true counts as a number.
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

    def weights(self, spec: RunSpec) -> Path:
        return self.folder / "weights" / spec.file_name

    def checkpoint(self, spec: RunSpec) -> Path:
        return self.path(spec).with_suffix(".checkpoint")

    @contextmanager
    def locked(self, spec: RunSpec, threads: int) -> Iterator[Lock | None]:
        lock = self.locks.acquire(spec.file_name, threads=threads, steps=spec.train.steps)
        try:
            yield lock
        finally:
            if lock is not None:
                lock.release(keep_state=self.checkpoint(spec).exists())

    def remove_leftovers(self) -> None:
        # Files of a run in progress are kept.
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
    kind, tag, file, subfolder = TaskBaselines, "baselines", "baselines.jsonl", "baselines"


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


POINTS = 25  # Points of a published curve, besides those at which dev was evaluated
KINDS: Mapping[str, type[RecordStore[Any]]] = {of.tag: of for of in RecordStore.__subclasses__()}


class Line(NamedTuple):
    """A record to publish: its published file, and its `source` in a store."""

    file: str
    kind: str
    name: str
    text: str
    source: Path


def file_of(suite: str, row: str) -> str:
    # `SUITE/ROW.jsonl`, or `runs/ROW.jsonl` without a suite.
    names = (re.sub(r"[^\w.@+-]+", "-", name).strip("-") for name in (suite or "runs", row))
    return f"{'/'.join(names)}.jsonl"


def line(of: RecordStore[Any], record: Any, file: str = "") -> Line:
    if isinstance(record, Record):
        file = file or file_of(record.spec.question.suite, record.spec.row)
        record = record.thinned(POINTS)
    name = of.name_of(record)
    text = line_of(of.tag, name, record.model_dump_json())
    return Line(file or of.file, of.tag, name, text, of.folder / f"{name}.json")


def every_line(store: Path) -> Iterator[Line]:
    for kind in KINDS.values():
        of = kind.within(store)
        for name, where in of.entries().items():
            if isinstance(where, Path):
                yield line(of, of.require(name))


def merged(lines: Iterable[Line], out: Path) -> dict[Path, bytes]:
    new = {(each.kind, each.name): each for each in lines}
    files = defaultdict[Path, dict[tuple[str, str], str]](dict)
    for key, each in new.items():
        files[out / each.file][key] = each.text
    found = [*read_lines(out)]
    changed = {*files, *(text.file for text in found if (text.kind, text.name) in new)}
    for text in found:
        if text.file in changed and (key := (text.kind, text.name)) not in new:
            if text.problem:
                raise UserError(
                    f"line {text.line} of {text.file} is not a record ({text.problem}); delete it"
                )
            files[text.file][key] = line_of(*key, text.text)
    contents = {path: [files[path][key] for key in sorted(files[path])] for path in sorted(changed)}
    return {path: "".join(texts).encode() for path, texts in contents.items()}


SAVED = "with a checkpoint or a record"  # The reason of an interrupted run without a state


class Entry(NamedTuple):
    """A run that is `done`, `outdated` by other code or data, `running`, `interrupted` or `failed`.

    `reason` says why it failed, or what it saved; `state` is of the process that began it.
    """

    status: str
    name: str
    reason: str = ""
    state: State | None = None


def overview(store: Store) -> tuple[list[Entry], list[Broken]]:
    runs, broken = store.read(curves=False)
    found = {run.spec.file_name: run for run in runs}
    states = store.locks.states()
    running = {name: state for name, state in states.items() if store.locks.is_held(name)}
    ended = {name: run for name, run in found.items() if name not in running}
    final = {name: run for name, run in ended.items() if run.is_final}
    is_old = dict(zip(final, outdated([*map(origin_of, final.values())]), strict=True))
    failed = {name: run.reason for name, run in ended.items() if run.status == "failed"}
    saved = (path.stem for path in store.folder.glob("*.checkpoint"))
    begun = sorted({*states, *saved, *ended} - {*running, *final, *failed})
    entries = [Entry("running", name, state=state) for name, state in running.items()]
    entries += (Entry("interrupted", name, "" if name in states else SAVED, states.get(name))
                for name in begun)  # fmt: skip
    entries += (Entry("failed", name, reason) for name, reason in failed.items())
    entries += (Entry("outdated" if is_old[name] else "done", name) for name in final)
    others = (kind.within(store.folder).read()[1] for kind in (CostStore, BaselineStore))
    return entries, [*broken, *chain.from_iterable(others)]


def summary(
    done: int, total: int, running: int, failed: int, others: int = 0, left: float = 0.0
) -> str:
    # `others` are in processes of other commands; `left`: seconds to the end, 0 if unknown.
    counts = [f"{done} of {total} runs done", f"{running} running", f"{failed} failed"]
    counts += [f"{others} running elsewhere"] if others else []
    if left:
        minutes = f"{left / 60:.0f} min" if left < 6000 else f"{left / 3600:.1f} h"
        counts.append(f"about {f'{left:.0f} s' if left < 100 else minutes} left")
    return ", ".join(counts)
