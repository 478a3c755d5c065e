"""Files of reports: written whole or not at all."""

import os
import tempfile
from pathlib import Path


def check_writable(path: Path) -> None:
    """See that a file can be written, before there is anything to write; nothing of it changes.

    Raises
    ------
    OSError
        When it cannot.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(f"{path}: expected a file, got a folder")
    if not _is_special(path):
        with tempfile.TemporaryFile(dir=path.parent):
            pass


def write_whole(path: Path, text: str) -> None:
    """Write a file under another name, and give it its own once all of it is there.

    Raises
    ------
    OSError
        When it cannot be written; what was there before is there still.
    """
    if _is_special(path):
        path.write_text(text, encoding="utf-8")
        return
    target = path.resolve()  # a link goes on being one
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    """Whether it is there and no plain file, such as a terminal: nothing takes its place."""
    return path.exists() and not path.is_file()
