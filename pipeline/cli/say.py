"""Words for people: text on stdout, progress and trouble on stderr, colours only on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def error(message: str, code: int = 1) -> int:
    print(f"headrace: {message}", file=sys.stderr)
    return code


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar over `total` bytes on a terminal; one line elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda amount: bar.advance(task, amount)
