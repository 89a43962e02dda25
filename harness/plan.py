"""A request, its draft and its plan: what a run is, before and after its data are read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from harness import recipes
from harness.data import Data
from harness.records.fields import Device, Frozen, Precision
from harness.records.models import MODELS, Positions
from harness.records.spec import RunSpec, TaskSpec, TrainSpec, TuningSpec, field_at
from harness.records.toml_files import validated
from tasks import Task, create
from tasks.data.sources import GeneratedTask
from tasks.registry import tasks
from zoo.composition import Composition
from zoo.registry import UserError, Value, unknown
from zoo.variants import variants

FLAGS = {"positions": "--positions", "precision": "--precision", "compiled": "--compile"}
"""Fields of the model and of `TrainSpec` that have a separate option, with that option."""

Settings = Mapping[str, Mapping[str, Value]]

S = TypeVar("S", bound=Frozen)


@dataclass(frozen=True, kw_only=True)
class Request:
    """A run before defaults are filled in.

    Attributes:
        attention: `A` or `A+B`.
        task: name of a task, or the path of a table of texts and labels, such as ./FOLDER.
        recipe: name of a recipe, or the path of a TOML file; the recipe of a question of a suite,
            `laptop@1/copy`, fixes precision and positions, whatever the request has.
        compiled: whether the model runs through `torch.compile`; None for on CUDA only.
        settings: options by owner, which override the recipe's. An owner is a variant, the task, or
            `model` or `train`, whose options are fields of the model and of `TrainSpec`.
        tuning: the grid from which some of the settings were chosen.
        match: what the feed-forward width was chosen to make equal to softmax's.
    """

    attention: str
    task: str
    recipe: str
    seed: int
    device: Device
    precision: Precision = "fp32"
    compiled: bool | None = None
    positions: str = "learned"
    settings: Settings = field(default_factory=dict)
    tuning: TuningSpec | None = None
    match: Literal["parameters"] | None = None

    @property
    def task_name(self) -> str:
        """The registered name of the task: a path, with a suffix or a folder, is of a table."""
        path = Path(self.task)
        return "table" if path.suffix or path.name != self.task else self.task

    def with_setting(self, path: str, value: Value) -> "Request":
        """The request with a value for `OWNER.OPTION`, in place of the one that it may have."""
        owner, _, option = path.partition(".")
        options = {**self.settings.get(owner, {}), option: value}
        return replace(self, settings={**self.settings, owner: options})


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run that is ready to start."""

    spec: RunSpec
    task: Task
    data: Data

    def with_fields(self, **fields: Any) -> "Plan":
        """The run with other fields of its specification, which are valid."""
        return replace(self, spec=self.spec.model_copy(update=fields))


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A request that is checked and completed by its recipe; its data are not read.

    Attributes:
        spec: of the run, without the digests of the data.
    """

    request: Request
    recipe: recipes.Recipe
    spec: RunSpec
    data: Data

    @classmethod
    def of(cls, request: Request, data_of: Callable[[Task], Data] = Data.of) -> "Draft":
        """Check a request: read its recipe, build its task.

        Raises:
            UserError: the variant, task, recipe or an option is unknown, ill-typed or out of range,
                or the recipe has no part for the task.
        """
        composition = Composition.parse(request.attention)
        if request.positions not in get_args(Positions):
            raise UserError(unknown("kind of positions", request.positions, get_args(Positions)))
        task, recipe = _task_and_recipe(request)
        name = request.task_name
        if question := recipe.question:
            request = replace(request, positions=question.positions, precision=question.precision)
        usual = recipe.of_task(name).options_of(composition.names)
        options = {v: {**usual[v], **request.settings.get(v, {})} for v in composition.names}
        model, train, overrides = _sections(request, task, recipe.of_task(name), recipe.name)
        data = data_of(task)
        of_task = TaskSpec(name=name, key=data.task.key, options=task.options, digests={})
        spec = RunSpec(
            attention=request.attention, layers=composition.layers(model.depth),
            options=composition.changed(options), task=of_task, budget=recipe.name,
            overrides=overrides | composition.overrides(options, usual), model=model, train=train,
            device=request.device, seed=request.seed, tuning=request.tuning, match=request.match,
        )  # fmt: skip
        return cls(request=request, recipe=recipe, spec=spec, data=data)

    def plan(self, announce: Callable[[str], None] = lambda line: None) -> Plan:
        """Load and hash the data, which completes the specification.

        `announce` is called with one line before data are generated, which can take minutes.

        Raises:
            UserError: the data are missing or damaged, or do not fit in memory.
        """
        task = self.data.task
        if isinstance(task, GeneratedTask) and not task.is_cached():
            announce(f"{task.key}: generate data")
        of_task = self.spec.task.model_copy(update={"digests": {**self.data.digests}})
        spec = self.spec.model_copy(update={"task": of_task})
        return Plan(spec=spec, task=task, data=self.data)


def resolve(
    request: Request,
    announce: Callable[[str], None] = lambda line: None,
    data_of: Callable[[Task], Data] = Data.of,
) -> Plan:
    """The plan of a request; raises the errors of `Draft.of` and `Draft.plan`."""
    return Draft.of(request, data_of).plan(announce)


def restore(spec: RunSpec) -> Plan:
    """The plan of a run that was recorded.

    Raises:
        UserError: its variants or its task are unknown, or the task or its data have changed since.
    """
    for name in spec.variants:
        variants.find(name)
    data = recorded_data(spec.task)
    return Plan(spec=spec, task=data.task, data=data)


def recorded_data(spec: TaskSpec) -> Data:
    """The data of a task that was recorded.

    Raises:
        UserError: the task is unknown, or it or its data are missing or have changed since.
    """
    task = create(spec.name, **spec.options)
    if task.key != spec.key:
        raise UserError(f"the run is of task {spec.key!r}, which is now {task.key!r}; run it again")
    data = Data.of(task)
    if {**data.digests} != spec.digests:
        raise UserError(f"the data of {task.key} have changed since the run; run it again")
    return data


def _task_and_recipe(request: Request) -> tuple[Task, recipes.Recipe]:
    """The task of a request and the recipe."""
    name = request.task_name
    # Before the recipe: the message for an unknown task lists the tasks.
    tasks.find(name)
    recipe = recipes.find(request.recipe)
    options = recipe.of_task(name).options
    _require_known(recipe)
    path = {"path": request.task} if name != request.task else {}
    return create(name, **{**options, **path, **request.settings.get(name, {})}), recipe


def _require_known(recipe: recipes.Recipe) -> None:
    """Reject a recipe with a table of an unknown task or variant, which nothing would read."""
    tables = [recipe, *recipe.tasks.values(), *recipe.shared.values(), recipe.other]
    of_variants = {name.removeprefix("+") for table in tables if table for name in table.variants}
    for registry, names in ((tasks, {*recipe.tasks}), (variants, of_variants)):
        for name in sorted(names - {name for name, _ in registry.built_in()}):
            if name not in registry.names():
                reason = unknown(registry.kind, name, registry.names())
                raise UserError(f"recipe {recipe.name!r}: {reason}")


def _sections(
    request: Request, task: Task, recipe: recipes.TaskRecipe, label: str
) -> tuple[Any, TrainSpec, dict[str, Value]]:
    """The model, the optimiser's recipe, and the fields in which they differ from the recipe's."""
    if task.inputs not in MODELS:
        raise UserError(f"{task.key}: there is no model of {task.inputs}; use another task")
    kind, prefix = MODELS[task.inputs], f"recipe {label!r}: "
    fields = {name for model in MODELS.values() for name in model.model_fields}
    others = fields - {*kind.model_fields}
    unused = [f"model.{name}" for name in request.settings.get("model", {}) if name in others]
    if "positions" in others and request.positions != "learned":
        unused.append(f"positions={request.positions}")
    _require_meaning(unused, task.inputs)
    fixed = {} if "positions" in others else {"positions": request.positions}
    # A recipe has fields of all kinds of models in the table that all tasks share.
    of_kind = {name: value for name, value in recipe.model.items() if name not in others}
    model, of_model = _section(kind, "model", of_kind, request.settings, prefix, **fixed)
    compiled = request.device == "cuda" if request.compiled is None else request.compiled
    train, of_train = _section(
        TrainSpec, "train", recipe.train, request.settings, prefix,
        precision=request.precision, compiled=compiled,
    )  # fmt: skip
    if task.inputs == "images":
        _require_meaning(["train.bucket_by_length"] * train.bucket_by_length, "images")
    else:
        _require_meaning(["train.augment"] * bool(train.augment), task.inputs)
    if task.classes == 1 and train.label_smoothing:
        _require_meaning(["train.label_smoothing"], "numbers as targets")
    return model, train, of_model | of_train


def _require_meaning(unused: Sequence[str], inputs: str) -> None:
    """Raise UserError for the first setting that has no meaning for such inputs."""
    for setting in unused:
        raise UserError(f"{setting} has no meaning for {inputs}; leave it out")


def _section(
    kind: type[S], owner: str, recipe: Mapping[str, Any], settings: Settings, prefix: str,
    **fixed: Value,
) -> tuple[S, dict[str, Value]]:  # fmt: skip
    """The fields of `owner`, which is `model` or `train`, and those that differ from the recipe's.

    `recipe` holds the fields that the recipe gives, `fixed` those that the request has itself.
    `prefix` names the recipe in messages.
    """
    for name in fixed.keys() & recipe.keys():
        raise UserError(
            f"{prefix}{owner}.{name} belongs to no recipe; remove it and use {FLAGS[name]}"
        )
    default = _validated(kind, f"{prefix}{owner}", {**recipe, **fixed})
    changes = settings.get(owner, {})
    for name in changes.keys() & fixed.keys():
        raise UserError(f"--set {owner}.{name} is not possible; use {FLAGS[name]}")
    result = _validated(kind, owner, _with_fields(default.model_dump(), changes))
    return result, {
        f"{owner}.{name}": _override(field_at(result, name), text)
        for name, text in changes.items()
        if field_at(result, name) != field_at(default, name)
    }


def _with_fields(values: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The values after the changes; `augment.mixup` is a field of the field `augment`."""
    for name, value in changes.items():
        owner, dot, field_name = name.partition(".")
        fields = values.get(owner) or {}
        if dot and isinstance(fields, Mapping):
            values[owner] = {**fields, field_name: value}
        else:
            values[name] = value
    return values


def _override(value: Any, text: Any) -> Value:
    """A field as a record names it: as its text, where it has fields itself."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return value if isinstance(value, Value) else text


def _validated(kind: type[S], owner: str, values: Mapping[str, Any]) -> S:
    fields = {name: field for name, field in kind.model_fields.items() if name != "kind"}
    for name in values.keys() - {"kind"}:
        if name not in fields:
            raise UserError(unknown(f"option of {owner}", name, fields))
    return validated(kind, dict(values), f"{owner}.", what="option")
