"""The bar of a download."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def download(name: str) -> Iterator[Callable[[str, int, int], None]]:
    console = Console(stderr=True)
    columns = (
        TextColumn("[bold]{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn()
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        row = bar.add_task(name, total=None)
        yield lambda file, done, total: bar.update(
            row, description=f"{name}: {file}", completed=done, total=total
        )
