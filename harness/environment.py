"""The environment of a run and its code: device, threads, commit, versions, known failures."""

import ctypes
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import cast

import psutil
import torch

from harness.records.cost import CostRecord, CostSpec
from harness.records.fields import Device, Precision, require_known
from harness.records.record import Environment, Record
from harness.records.spec import RunSpec, TaskSpec
from harness.records.versions import LOOP, TRAINING, file_digest, is_current, major
from tasks import Task
from tasks.registry import tasks
from zoo.registry import UserError, Value, resolve
from zoo.variants import variants

# Packages whose versions are recorded if they are installed.
PACKAGES = (
    "numpy", "attention-harness", "xformers", "performer-pytorch", "nystrom-attention",
    "reformer-pytorch", "flash-linear-attention", "timm", "pillow",
)  # fmt: skip
MACHINE = ("device", "memory_gib", "system")  # Fields that do not change on one machine
# For glibc's `mallopt`: never trim, grow the heap by 64 MiB more than needed, never use mmap.
MALLOC = {-1: -1, -2: 64 * 2**20, -4: 0}


def pick_device(name: str) -> Device:
    require_known("device", [name], ("auto", "cpu", "cuda"))
    usable = torch.cuda.is_available()
    if name == "cuda" and not usable:
        raise UserError("device 'cuda' is not usable: torch finds no CUDA device; use --device cpu")
    return "cuda" if usable and name != "cpu" else "cpu"


def pick_precision(name: str, device: str) -> Precision:
    require_known("precision", [name], ("auto", "bf16", "fp32"))
    by_device: Precision = "bf16" if device == "cuda" else "fp32"
    return by_device if name == "auto" else cast(Precision, name)


def describe(kind: str) -> Environment:
    return _of_process(kind).model_copy(update={"threads": torch.get_num_threads()})


def memory_of(kind: str) -> int:
    if kind == "cuda":
        return torch.cuda.get_device_properties(0).total_memory
    return psutil.virtual_memory().total


@cache
def _of_process(kind: str) -> Environment:
    cuda = kind == "cuda"
    device, memory = torch.cuda.get_device_name(0) if cuda else _processor(), memory_of(kind)
    # torch.__version__ includes the build, for example +cpu.
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return Environment(
        device=device, threads=torch.get_num_threads(), memory_gib=round(memory / 2**30, 1),
        system=f"{platform.system()} {platform.machine()}", versions=versions, commit=_commit(),
    )  # fmt: skip


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count if count <= (os.cpu_count() or 1) else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def merge_commits(
    started: Environment, current: Environment, what: str, remedy: str
) -> Environment:
    # Packages of only one of the environments are ignored.
    before, here = _by_name(started), _by_name(current)
    differences = [f"{name} {value} (here {here[name]})" for name, value in before.items()
                   if value != here.get(name, value)]  # fmt: skip
    if differences:
        raise UserError(f"{what} was started with {', '.join(differences)}; {remedy}")
    if not started.commit:
        return current
    commits = dict.fromkeys((*started.commits, *current.commits))
    return current.model_copy(update={"commit": ", ".join(commits)})


def keep_freed_memory() -> None:
    # See docs/decisions/costs.md.
    with suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        for setting, value in MALLOC.items():
            mallopt(setting, value)


def _by_name(environment: Environment) -> Mapping[str, object]:
    fields = environment.model_dump(exclude={"commit", "versions"})
    return {name.replace("_", " "): value for name, value in fields.items()} | environment.versions


def _processor() -> str:
    capability = torch.backends.cpu.get_cpu_capability()
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"{next(names, platform.processor() or platform.machine())} ({capability})"


def _commit() -> str:
    # `+` marks changed files.
    try:
        folder = Path(__file__).parent
        # An unrelated repository around an installed copy does not track it.
        _git(folder, "ls-files", "--error-unmatch", Path(__file__).name)
        head = _git(folder, "rev-parse", "--short=12", "HEAD")
        changed = _git(folder.parent, "status", "--porcelain", "--", "zoo", "tasks", "harness")
        return head + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()


def environment_of(spec: RunSpec, task: Task) -> Environment:
    environment, versions = describe(spec.device), dict(tasks.package(spec.task.name))
    for name in spec.variants:
        versions |= variants.package(name)
    versions |= {name: metadata.version(name) for name in task.packages}
    return environment.model_copy(update={"versions": environment.versions | versions})


def versions_of(names: Iterable[str]) -> dict[str, str]:
    return {name: version_of(variants.find(name)) for name in names}


def majors_of(names: Iterable[str]) -> dict[str, str]:
    return {name: major(version) for name, version in versions_of(names).items()}


def version_of(variant: type) -> str:
    # Without a version, the file as it is now.
    if version := vars(variant).get("version"):
        return version
    digest = file_digest(file_of(variant))
    return f"sha256:{digest}" if digest else ""


def file_of(variant: type) -> str:
    return getattr(sys.modules.get(variant.__module__), "__file__", None) or ""


def is_outdated(record: Record | CostRecord) -> bool:
    return not is_current(record.version, versions_of(record.versions) | {LOOP: TRAINING})


def covered(names: Iterable[str]) -> list[str]:
    note = (
        '{}: runs are of the SHA-256 of {} alone; give the class version = "1.0" if it depends on '
        "other files, and raise it when what it computes changes"
    )
    kinds = {name: variants.find(name) for name in names}
    return [note.format(name, file_of(kind)) for name, kind in kinds.items()
            if not vars(kind).get("version")]  # fmt: skip


def files_of(spec: TaskSpec) -> dict[str, str]:
    path = str(spec.options.get("path", ""))
    digest = file_digest(path) if path else ""
    return {path: digest} if digest else {}


def options_of(spec: RunSpec | CostSpec) -> dict[str, dict[str, Value]]:
    options = spec.options.items()
    return {name: resolve(name, variants.find(name), changed) for name, changed in options}


def expected_failures_of(spec: RunSpec, task: Task) -> dict[str, str]:
    causal, kinds = task.causal, {name: variants.find(name) for name in spec.variants}
    declared = {name: kind.expected_failures_of(causal=causal) for name, kind in kinds.items()}
    return {f"{name}: {check}": why for name, of in declared.items() for check, why in of.items()}


def is_foreign(names: Iterable[str]) -> bool:
    modules = [variants.find(name).__module__ for name in names]
    return any(module.partition(".")[0] != "zoo" for module in modules)


def is_baseline(names: Iterable[str]) -> bool:
    return all(variants.find(name).is_baseline for name in names)
