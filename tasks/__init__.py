"""What is learned: real and generated data with honest splits; knows nothing of training."""

from tasks.contract import Task
from tasks.registry import tasks

__all__ = ["Task", "tasks"]
