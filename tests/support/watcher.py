"""A thread that looks again and again while a test does something."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeating(look: Callable[[], object], pause_s: float) -> Iterator[None]:
    done = threading.Event()

    def watch() -> None:
        while not done.wait(pause_s):
            look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
