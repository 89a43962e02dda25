"""Files that are there whole or not at all."""

import os
from pathlib import Path


def place(path: Path, content: bytes) -> Path:
    """Write `content` beside `path`, then rename it to `path`, and return `path`.

    A reader sees the old file or the new one; a kill in between leaves a hidden `.partial` file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
