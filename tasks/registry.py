"""The registry of tasks: built-in ones live in `tasks.lra`."""

from tasks.contract import Task
from zoo.registry import Registry

tasks: Registry[type[Task]] = Registry("task", package="tasks.lra", group="tasks.tasks", base=Task)
