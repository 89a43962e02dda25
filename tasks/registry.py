"""The registry of tasks."""

from tasks.contract import Task
from zoo.registry import Registry

tasks: Registry[type[Task]] = Registry(
    "task", "tasks.control", "tasks.image_folder", "tasks.language", "tasks.lra",
    "tasks.synthetic", "tasks.table", "tasks.uea", group="tasks.tasks", base=Task,
)  # fmt: skip
