"""One run, in one process at a time: from a specification to a record, also of errors."""

import logging
import time
import traceback
import warnings
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from harness import checkpoint, environment
from harness.data import is_out_of_memory, restore
from harness.environment import MACHINE, keep_freed_memory, merge_commits, use_threads
from harness.interrupts import Interrupts
from harness.model import attentions, build_model, trainable
from harness.records.answers import ClusterValues, CorrectAnswers
from harness.records.cost import SDPA, softmax_by, step_recipe
from harness.records.fields import now
from harness.records.locks import Lock
from harness.records.record import Final, Point, Probe, Processor, Record, Status
from harness.records.spec import RunSpec
from harness.records.store import Store
from harness.records.versions import TRAINING, line_of_run
from harness.train import DivergedError, Progress, Trainer, autocast, fit
from tasks.contract import SPLITS, Batch, Split, Task
from tasks.control.control import Control
from tasks.control.windows import Windows
from zoo.cost import backends, flops, state_bytes
from zoo.registry import UserError, in_one_line

LOG = logging.getLogger(__name__)
SECONDS_PER_LINE = 10.0  # Minimum seconds between two lines of a run without a score on dev
BAR = {"bar": "run"}  # A part of the line at the foot of a terminal
SAVE_EVERY = 120.0  # Seconds of training between two checkpoints, at most
# Called with the phase that begins, a new point of the curve, or an unexpected traceback.
Report = Callable[[Literal["phase", "point", "trace"], Any], None]


class Attempt:
    def __init__(
        self, spec: RunSpec, store: Store, report: Report = lambda what, value: None,
        save_every: float = SAVE_EVERY, clock: Callable[[], float] = time.monotonic,
        keep_checkpoints: bool = False,
    ) -> None:  # fmt: skip
        self.spec, self.report, self.progress = spec, report, Progress()
        with self.progress.spent("data"):
            self.data = restore(spec)
        self.store, self.path = store, store.checkpoint(spec)
        self.weights = store.weights(spec) if keep_checkpoints else None
        self.save_every, self.clock, self.save_at = save_every, clock, 0.0
        self.interrupts = Interrupts()
        self.started, self.start = now(), time.perf_counter()
        self.environment = environment.environment_of(spec, self.data.task)
        self.versions = environment.versions_of(spec.variants)
        self.files = environment.files_of(spec.task)
        self.version = line_of_run(self.versions, TRAINING)
        self.progress.environment, self.progress.version = self.environment, self.version
        self.parameters: int | None = None
        self.flops: int | None = None
        self.state_bytes: int | None = None
        self.backend = ""

    def record(self, status: Status, reason: str, final: Final | None = None) -> Record:
        spec, data = self.spec, self.data.summary
        return Record(
            spec=spec, status=status, reason=reason, started=self.started,
            environment=self.environment, versions=self.versions, training=TRAINING,
            files=self.files,
            expected_failures=environment.expected_failures_of(spec, self.data.task),
            is_baseline=environment.is_baseline(spec.variants),
            options=environment.options_of(spec), metric=data.metric,
            dev_metric=data.dev_metric if data.dev_metric != data.metric else None,
            parameters=self.parameters, flops=self.flops, backend=self.backend,
            state_bytes=self.state_bytes, curve=self.progress.curve, final=final,
            processor=Processor(**self.progress.processor),
        )  # fmt: skip

    def execute(self) -> Final:
        spec, task, device = self.spec, self.data.task, torch.device(self.spec.device)
        if spec.train.compiled:
            # The compile cache of a process has a limited size.
            torch.compiler.reset()
        self.report("phase", "load data")
        with self.progress.spent("data"):
            train, dev, test = (self.data.splits[name].to(device) for name in SPLITS)
        if spec.train.best_on_test and isinstance(task, Control):
            raise UserError(f"{task.key} has no test answers; give train.best_on_test=false")
        # Not the fastest backend of this machine: curves of two machines are alike.
        built = spec.model_copy(update={"options": softmax_by(SDPA, spec.options)})
        torch.manual_seed(spec.seed)
        model = build_model(built, task).to(device)
        self.parameters = trainable(model)
        self.flops, self.backend = counts_of(model, train, spec, task)
        self.report("phase", "train")
        trainer = Trainer(model, train, spec.train, spec.seed)
        if self.path.exists():
            self._resume(trainer)
        self.state_bytes = state_bytes_of(model)
        self._train(trainer, dev, test if spec.train.best_on_test else None)
        self.report("phase", "test")
        with self.progress.spent("evaluation"):
            return self._evaluate(trainer, test)

    def _resume(self, trainer: Trainer) -> None:
        def rejects(progress: Progress) -> str:
            if progress.version != self.version:
                return f"of other code of {self.spec.attention}"
            here, started = self.environment, progress.environment or self.environment
            is_here = all(getattr(started, name) == getattr(here, name) for name in MACHINE)
            return "" if is_here else "of another machine"

        data = self.progress.processor["data"]
        try:
            self.progress = checkpoint.load(self.path, trainer, rejects)
        except checkpoint.DamagedError as error:
            warnings.warn(f"{error}; the run starts again from the beginning", stacklevel=2)
            return
        self.start -= self.progress.elapsed
        self.progress.processor["data"] += data
        self.environment = merge_commits(
            self.progress.environment or self.environment, self.environment, str(self.path),
            "continue there, or delete it to start the run again",
        )  # fmt: skip

    def _train(self, trainer: Trainer, dev: Split, test: Split | None) -> None:
        def save() -> None:
            self.progress.elapsed = time.perf_counter() - self.start
            checkpoint.save(self.path, trainer, self.progress)
            self.save_at = self.clock() + self.save_every
            self.interrupts.raise_pending()

        def save_is_due() -> bool:
            return self.interrupts.pending is not None or self.clock() >= self.save_at

        def on_point(point: Point) -> None:
            if self.weights and point.dev is not None:
                checkpoint.save_weights(self.weights, point.step, trainer.model)
            self.report("point", point)

        if self.weights and not self.progress.step:
            checkpoint.save_weights(self.weights, 0, trainer.model)
        self.save_at = self.clock() + self.save_every
        self.interrupts.deferred = True
        fit(
            trainer, dev, self.progress, on_point=on_point, save=save, save_is_due=save_is_due,
            test=test, groups=self.data.task.groups(dev),
        )  # fmt: skip
        self.interrupts.deferred = False
        self.interrupts.raise_pending()

    def _evaluate(self, trainer: Trainer, test: Split) -> Final:
        trainer.model.load_state_dict(self.progress.best_state)
        if isinstance(self.data.task, Control):
            sample = roll_out(trainer, self.data.task, test)
        else:
            sample = by_cluster(trainer.evaluate(test).values, test)
        progress, metric, probes = self.progress, self.data.summary.metric, {}
        for name, split in self.data.task.probes().items():
            split = split.to(trainer.device)
            of_probe = by_cluster(trainer.evaluate(split).values, split)
            probes[name] = Probe(score=metric.value(of_probe.mean), sample=of_probe)
        return Final(
            score=metric.value(sample.mean), test_examples=len(test), sample=sample,
            dev=cast(float, progress.best), best_step=progress.best_step, probes=probes,
            train_seconds=progress.seconds, seconds=time.perf_counter() - self.start,
            best_on_test=progress.best_on_test,
        )  # fmt: skip


def by_cluster(values: Shaped[Tensor, "n ..."], split: Split) -> CorrectAnswers | ClusterValues:
    clusters, counted = clusters_of(split), split.answers.counted(split.targets).cpu()
    if values.dtype != torch.bool:
        _, clusters = clusters.unique(return_inverse=True)
        sizes, sums = (
            clusters.bincount(of_examples.cpu().double().flatten(1).sum(1)).tolist()
            for of_examples in (counted, values)
        )
        return ClusterValues(sizes=tuple(map(round, sizes)), sums=tuple(sums))
    of_example = counted.long().flatten(1).sum(1) if counted.dim() > 1 else counted.long()
    answers = clusters.bincount(of_example.double()).long()
    # Stable sorts: by the cluster's number of answers, then by cluster, then by example.
    order = clusters.argsort(stable=True)
    order = order[answers[clusters][order].argsort(stable=True)]
    sizes = answers[clusters[order].unique_consecutive()]
    return CorrectAnswers.pack(values.cpu()[order][counted[order]].tolist(), sizes.tolist())


def clusters_of(split: Split) -> Int[Tensor, " n"]:
    # A document of Retrieval is in many examples; the other sequence of an example is ignored.
    if split.clusters is not None:
        return split.clusters.cpu().long()
    ids = split.sequence_ids.cpu().long()
    uses = ids.flatten().bincount()[ids]
    return ids.gather(1, uses.argmax(1, keepdim=True))[:, 0]


def roll_out(trainer: Trainer, task: Control, test: Split) -> ClusterValues:
    trainer.model.eval()

    @torch.inference_mode()
    def act(windows: Windows, count: int) -> Float[Tensor, "e a"]:
        windows = windows.to(trainer.device)
        mask = torch.arange(windows.shape[1], device=trainer.device) < count
        batch = Batch(
            windows[:, None], mask.expand(windows.shape[:2])[:, None], windows[..., -task.classes :]
        )
        return trainer.scores(batch)[:, count - 1].float().cpu()

    returns = [task.references().normalised(value) for value in task.returns(act, test)]
    return ClusterValues(sizes=(1,) * len(returns), sums=tuple(returns))


def counts_of(model: torch.nn.Module, train: Split, spec: RunSpec, task: Task) -> tuple[int, str]:
    # Restores the model and the generators. A compiled model does not make the PyTorch calls that
    # are counted.
    recipe = step_recipe(spec.train).model_copy(update={"compiled": False})
    before, device = deepcopy(model.state_dict()), train.targets.device
    shape = (recipe.batch * task.sequences, task.length("train"), spec.model.dim)
    with torch.random.fork_rng([torch.cuda.current_device()] if device.type == "cuda" else []):
        torch.manual_seed(0)
        trainer = Trainer(model, train, recipe, seed=0)
        with autocast(device.type, recipe.precision):
            backend = backends(model, device, shape)
        model.train()
        found = flops(lambda: trainer.step(0))
    model.load_state_dict(before)
    return found, "compiled" if spec.train.compiled else backend


def state_bytes_of(model: torch.nn.Module) -> int | None:
    layers = attentions(model)
    decodes = all(layer.traits.recurrent and layer.size.causal for layer in layers)
    return sum(state_bytes(layer.start(1)) for layer in layers) if decodes else None


def run(
    spec: RunSpec, store: Store, report: Report = lambda what, value: None, *,
    found: Record | None = None, save_every: float = SAVE_EVERY,
    clock: Callable[[], float] = time.monotonic, keep_checkpoints: bool = False,
) -> Record:  # fmt: skip
    # Continues from a checkpoint in the store. During training Ctrl-C and SIGTERM take effect after
    # the current step: a checkpoint is written, the record is `interrupted`.
    attempt = Attempt(spec, store, report, save_every, clock, keep_checkpoints)
    with attempt.interrupts:
        try:
            record = attempt.record("ok", "", attempt.execute())
        except KeyboardInterrupt:
            reason = f"interrupted at step {attempt.progress.step}"
            attempt.interrupts.deferred = True
            save_record(attempt.record("interrupted", reason), store, found)
            raise
        except BaseException as error:
            # SystemExit, too: a variant must not end the process.
            status = "out_of_memory" if is_out_of_memory(error) else "failed"
            status = "diverged" if isinstance(error, DivergedError) else status
            record = attempt.record(status, reason_of(error))
            if status == "failed" and not isinstance(error, UserError):
                report("trace", traceback.format_exc())
        attempt.interrupts.deferred = True
        record = save_record(record, store, found)
        attempt.interrupts.raise_pending()
        return record


def failure(spec: RunSpec, store: Store, reason: str) -> Record:
    return Attempt(spec, store).record("failed", reason)


def save_record(record: Record, store: Store, found: Record | None) -> Record:
    # A finished run is replaced by an error only of other code; a result needs no checkpoint.
    finished = found if found is not None and found.status == "ok" else None
    if (
        record.status != "ok"
        and finished
        and (finished.version == record.version or record.status == "interrupted")
    ):
        return finished
    store.write(record)
    if record.is_final:
        store.checkpoint(record.spec).unlink(missing_ok=True)
    return record


def reason_of(error: BaseException) -> str:
    return str(error) if isinstance(error, DivergedError | UserError) else in_one_line(error)


class Result(NamedTuple):
    """The result of an execution; another process executes a run without `record` and `error`."""

    record: Record | None = None
    new: bool = False
    error: str = ""
    trace: str = ""
    warnings: tuple[str, ...] = ()


def title(spec: RunSpec) -> str:
    return f"{spec.attention} {spec.task.name} seed {spec.seed}"


class Reported:
    def __init__(self, lock: Lock, name: str) -> None:
        self.lock, self.name, self.trace, self.line_at = lock, name, "", 0.0

    def __call__(self, what: str, value: Any) -> None:
        if what == "trace":
            self.trace = value
            return
        self.lock.report(**{what: value})
        if what == "phase":
            LOG.info("%s: %s", self.name, value, extra=BAR)
            return
        level = logging.DEBUG
        if value.dev is not None or time.monotonic() >= self.line_at:
            level, self.line_at = logging.INFO, time.monotonic() + SECONDS_PER_LINE
        losses = "".join(f" {name} {loss:.2g}" for name, loss in value.losses.items())
        dev = "" if value.dev is None else f" dev {value.dev:.4g}"
        text = f"loss {value.loss:.3f}{losses}{dev} ({value.seconds:.0f} s)"
        steps = value.step, self.lock.state.steps
        LOG.log(level, "%s: step %s/%s %s", self.name, *steps, text, extra=BAR)


def execute(
    spec: RunSpec, store: Store, *, before: str = "", failed: str = "",
    keep_checkpoints: bool = False,
) -> Result:  # fmt: skip
    # An interrupted run of this machine continues with its threads. A record in the store is
    # returned, unless its run began at `before` or was interrupted. `failed` is why it failed.
    left, threads = store.locks.state(spec.file_name), torch.get_num_threads()
    if left is not None and left.is_of_this_host and store.checkpoint(spec).exists():
        threads = left.threads
    with use_threads(threads), store.locked(spec, torch.get_num_threads()) as lock:
        if lock is None:
            return Result()
        found = store.find(spec)
        if found and found.started != before and found.status != "interrupted":
            return Result(found)
        reported = Reported(lock, title(spec))
        if failed:
            record = save_record(failure(spec, store, failed), store, found)
        else:
            record = run(spec, store, reported, found=found, keep_checkpoints=keep_checkpoints)
        return Result(record, new=True, trace=reported.trace)


def execute_elsewhere(spec: RunSpec, folder: Path, threads: int, **how: Any) -> Result:
    keep_freed_memory()
    torch.set_num_threads(threads)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = execute(spec, Store(folder), **how)
        except UserError as error:
            result = Result(error=str(error))
        except Exception:
            result = Result(error=traceback.format_exc())
    return result._replace(warnings=tuple(str(warned.message) for warned in caught))
