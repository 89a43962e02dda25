"""What is learned: real and generated data with honest splits; knows nothing of training."""

from tasks.contract import Split, Task
from tasks.registry import tasks

__all__ = ["Split", "Task", "tasks"]
