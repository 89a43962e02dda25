"""The registry of tasks: built-in ones live in `tasks.lra` and `tasks.synthetic`."""

from tasks.contract import Task
from zoo.registry import Registry

tasks: Registry[type[Task]] = Registry(
    "task", "tasks.lra", "tasks.synthetic", group="tasks.tasks", base=Task
)
