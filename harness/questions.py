"""Questions and runs from a user's names: `question_of`, then `spec_of` for each run."""

from collections.abc import Collection, Mapping, Sequence
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args

from harness import recipes
from harness.data import data_of
from harness.environment import pick_precision
from harness.records.fields import Device, Frozen, require_known
from harness.records.spec import MODELS, Positions, Question, RunSpec, TaskSpec, TrainSpec, field_at
from harness.records.suites import Suite, SuiteQuestion
from harness.records.toml_files import validated
from tasks import Task, create
from tasks.registry import tasks
from zoo.composition import Composition
from zoo.registry import UserError, Value, unknown
from zoo.variants import variants

# Fields of model and train with a separate option.
FLAGS = {"positions": "--positions", "precision": "--precision", "compiled": "--compile"}
SHARED = ("model", "train")  # The owners of fields that all rows of a question share
RATE = "train.lr"  # The field that is tuned by default
FACTORS = (1 / 3, 1.0, 3.0, 9.0)  # Its values as multiples of the recipe's
MOST_POINTS = 64  # Points of a grid, at most

# Options by owner: a variant, a task, `model` or `train`.
Settings = Mapping[str, Mapping[str, Value]]
Texts = Mapping[str, Sequence[str]]  # Values of fields as text, by path
S = TypeVar("S", bound=Frozen)
NONE: Mapping[str, Any] = MappingProxyType({})


def question_of(
    task: str, recipe: str | recipes.Recipe = "laptop", settings: Settings = NONE, *,
    device: Device = "cpu", precision: str = "auto", positions: str = "",
    compiled: bool | None = None, tune: bool = False, grid: Texts = NONE, match: str = "",
) -> Question:  # fmt: skip
    # Reads no data. `recipe` may be a question, `laptop@3/overwrite`, which fixes the precision.
    name = name_of(task)
    if positions:
        require_known("kind of positions", [positions], get_args(Positions))
    tasks.find(name)
    found = recipes.find(recipe) if isinstance(recipe, str) else recipe
    of_task = found.of_task(name)
    if found.name not in recipes.NAMES:
        _require_known(found)
    path = {"path": task} if name != task else {}
    made = create(name, **{**of_task.options, **path, **settings.get(name, {})})
    declared = found.question
    usual = declared.positions if declared else "learned"
    positions = positions or usual
    by_length = any(of_task.train.get(f"{kind}_by_length") for kind in ("bucket", "parts"))
    own = declared.precision if declared else pick_precision(precision, device)
    if declared and precision not in ("auto", own):
        raise UserError(
            f"--precision {precision} is not possible: {found.name} has {own}; leave it out"
        )
    usually = device == "cuda" and not by_length
    of_train = {"precision": own, "compiled": usually if compiled is None else compiled}
    model, train, changes = _sections(
        made, of_task, f"recipe {found.name!r}: ", settings, positions, of_train
    )
    if match not in ("", "parameters"):
        raise UserError(f"--match {match!r} is not possible; give parameters")
    question = Question(
        name="", task=TaskSpec(name=name, key=made.key, options=made.options), recipe=found.name,
        model=model, train=train, variants=of_task.variants,
        match="parameters" if match else None,
    )  # fmt: skip
    if tune:
        question = _tuned(question, grid, declared.rates if declared else (), settings)
    suite, _, of_suite = found.name.rpartition("/")
    is_changed = changes or settings.get(name) or grid or compiled
    if declared and not is_changed and positions == usual and tune == bool(declared.rates):
        names = {"name": of_suite, "suite": suite, "declared": found.declared}
        return question.model_copy(update=names)
    name = _name(question, changes, "" if positions == usual else positions, device)
    return question.model_copy(update={"name": name})


def of_suite(
    suite: Suite, declared: SuiteQuestion, device: Device, match: str = ""
) -> Question:  # fmt: skip
    recipe, tune = recipes.of_question(suite, declared.name), bool(declared.rates)
    return question_of(declared.task, recipe, device=device, tune=tune, match=match)


def spec_of(
    question: Question, attention: str, settings: Settings = NONE, *, seed: int = 0,
    device: Device = "cpu", values: Mapping[str, Value] = MappingProxyType({}),
    role: Literal["trial", "final", ""] = "",
) -> RunSpec:  # fmt: skip
    # `settings` of the variants override the question's options; others are ignored.
    composition, options = composed(question.variants, attention, settings)
    depth = int(values.get("model.depth", question.model.depth))
    return RunSpec(
        question=question, attention=attention, layers=composition.layers(depth), **options,
        values=dict(values), role=role, seed=seed, device=device,
        data={str(name): text for name, text in data_of(question.task).digests.items()},
    )  # fmt: skip


def composed(
    recipe: Mapping[str, Mapping[str, Any]], attention: str, settings: Settings
) -> tuple[Composition, dict[str, Any]]:
    composition = Composition.parse(attention)
    usual = recipes.options_of(recipe, composition.names)
    options = {name: {**usual[name], **settings.get(name, {})} for name in composition.names}
    return composition, {
        "options": composition.changed(options),
        "overrides": composition.overrides(options, usual),
    }


def name_of(task: str) -> str:
    # A path, with a suffix or a folder, means task `table`.
    path = Path(task)
    return "table" if path.suffix or path.name != task else task


def require_used(settings: Settings, owners: Collection[str]) -> None:
    for owner in settings.keys() - owners:
        known = ", ".join(sorted(owners))
        raise UserError(f"--set {owner}: no row uses {owner!r}; give one of {known}")


def _name(question: Question, changes: Mapping[str, Value], positions: str, device: Device) -> str:
    train, on_cuda = question.train, device == "cuda"
    texts = [f"{path}={changes[path]}" for path in sorted(changes)]
    if positions:
        texts.append(f"positions={positions}")
    if train.precision != ("bf16" if on_cuda else "fp32"):
        texts.append(train.precision)
    if train.compiled != on_cuda:
        texts.append("compiled" if train.compiled else "not compiled")
    name = f"{question.task.key}, recipe {question.recipe}"
    name += f" with {', '.join(texts)}" if texts else ""
    name += f", {question.match} matched" if question.match else ""
    tuned = (f"{path} {', '.join(map(str, v))}" for path, v in question.grid.items())
    return f"{name} tuned over {'; '.join(tuned)}" if question.grid else name


def _tuned(
    question: Question, texts: Texts, rates: Sequence[float], settings: Settings
) -> Question:
    _require_few(texts, 0)
    for path in texts or (RATE,):
        owner, _, name = path.partition(".")
        if owner not in SHARED:
            raise UserError(
                f"--grid {path}: rows share a grid of fields of train and model, for example "
                f"{RATE}; compare options of a variant as separate rows, with --set"
            )
        if (value := settings.get(owner, {}).get(name)) is not None:
            raise UserError(f"--set {path}={value} gives a field that is tuned; remove it")
    rate = question.train.lr
    usual = {RATE: tuple(sorted(rates)) or tuple(float(f"{rate * by:.3g}") for by in FACTORS)}
    grid = {path: _values(question, path, of) for path, of in texts.items()} or usual
    question = question.model_copy(update={"grid": grid})
    _require_few(grid, 2)
    return question


def _values(question: Question, path: str, texts: Sequence[str]) -> tuple[Value, ...]:
    owner, _, name = path.partition(".")
    part = getattr(question, owner)
    if not isinstance(getattr(part, name, None), Value):
        raise UserError(f"--grid {path} is not possible; give a field with one value, as {RATE}")
    parts = (_validated(type(part), owner, {**part.model_dump(), name: text}) for text in texts)
    return tuple(sorted({getattr(p, name) for p in parts}, key=lambda v: (str(type(v)), v)))


def _require_few(grid: Mapping[str, Sequence[Any]], least: int) -> None:
    count = prod(map(len, grid.values())) if grid else 0
    if not least <= count <= MOST_POINTS and (grid or least):
        raise UserError(
            f"the grid has {count} points; give 2 to {MOST_POINTS}, for example "
            f"--grid {RATE}=5e-4,1e-3,2e-3"
        )


def _require_known(recipe: recipes.Recipe) -> None:
    # Tables of unknown tasks and variants would be ignored.
    tables = [recipe, *recipe.tasks.values(), *recipe.shared.values(), recipe.other]
    of_variants = {name.removeprefix("+") for table in tables if table for name in table.variants}
    for registry, names in ((tasks, {*recipe.tasks}), (variants, of_variants)):
        for name in sorted(names - {name for name, _ in registry.built_in()}):
            if name not in registry.names():
                reason = unknown(registry.kind, name, registry.names())
                raise UserError(f"recipe {recipe.name!r}: {reason}")


def _sections(
    task: Task, recipe: recipes.TaskRecipe, prefix: str, settings: Settings, positions: str,
    of_train: Mapping[str, Value],
) -> tuple[Any, TrainSpec, dict[str, Value]]:  # fmt: skip
    if task.inputs not in MODELS:
        raise UserError(f"{task.key}: there is no model of {task.inputs}; use another task")
    kind = MODELS[task.inputs]
    fields = {name for model in MODELS.values() for name in model.model_fields}
    others = fields - {*kind.model_fields}
    unused = [f"model.{name}" for name in settings.get("model", {}) if name in others]
    if "positions" in others and positions != "learned":
        unused.append(f"positions={positions}")
    _require_meaning(unused, task.inputs)
    # The shared table of a recipe has fields of all kinds of models.
    of_kind = {name: value for name, value in recipe.model.items() if name not in others}
    of_model = {} if "positions" in others else {"positions": positions}
    model, changed = _section(kind, "model", of_kind, settings, prefix, of_model)
    train, changed_train = _section(TrainSpec, "train", recipe.train, settings, prefix, of_train)
    name = "bucket_by_length" if task.inputs == "images" else "augment"
    _require_meaning([f"train.{name}"] * bool(getattr(train, name)), task.inputs)
    if task.classes == 1 and train.label_smoothing:
        _require_meaning(["train.label_smoothing"], "numbers as targets")
    return model, train, changed | changed_train


def _require_meaning(unused: Sequence[str], inputs: str) -> None:
    for setting in unused:
        raise UserError(f"{setting} has no meaning for {inputs}; leave it out")


def _section(
    kind: type[S], owner: str, recipe: Mapping[str, Any], settings: Settings, prefix: str,
    fixed: Mapping[str, Value],
) -> tuple[S, dict[str, Value]]:  # fmt: skip
    for name in fixed.keys() & recipe.keys():
        path = f"{prefix}{owner}.{name}"
        raise UserError(f"{path} belongs to no recipe; remove it and use {FLAGS[name]}")
    default = _validated(kind, f"{prefix}{owner}", {**recipe, **fixed})
    changes = settings.get(owner, {})
    for name in changes.keys() & fixed.keys():
        raise UserError(f"--set {owner}.{name} is not possible; use {FLAGS[name]}")
    values = default.model_dump()
    for path, value in changes.items():
        # As `augment.mixup`, a field of the field `augment`.
        name, dot, field_name = path.partition(".")
        fields = values.get(name) or {}
        if dot and isinstance(fields, Mapping):
            values[name] = {**fields, field_name: value}
        else:
            values[path] = value
    result, changed = _validated(kind, owner, values), dict[str, Value]()
    for path, text in changes.items():
        if (value := field_at(result, path)) != field_at(default, path):
            texts = ",".join(map(str, value)) if isinstance(value, tuple) else text
            changed[f"{owner}.{path}"] = value if isinstance(value, Value) else texts
    return result, changed


def _validated(kind: type[S], owner: str, values: Mapping[str, Any]) -> S:
    fields = {name: field for name, field in kind.model_fields.items() if name != "kind"}
    require_known(f"option of {owner}", values.keys() - {"kind"}, fields)
    return validated(kind, dict(values), f"{owner}.", what="option")
