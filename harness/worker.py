"""The process of a worker; torch is imported when it has its share of the machine."""

import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection


def work(connection: Connection, threads: int, gpu: str) -> None:
    """Run jobs from the other end of a pipe, one after the other, until it is closed.

    SIGTERM, and the end of the parent, end the process after the current step of a run; its
    checkpoint is written first.

    Args:
        connection: gives each `Job` and its threads, and takes its `Result`.
        threads: CPU threads of libraries that do not follow torch.
        gpu: the only one that the process may use; empty for all.
    """
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from harness.jobs import execute

    try:
        while True:
            connection.send(execute(*connection.recv()))
    except (EOFError, OSError):
        sys.exit(0)  # the parent has closed its end
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGTERM)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
