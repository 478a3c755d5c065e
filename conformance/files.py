"""Writes files of reports completely or not at all."""

import os
import tempfile
from pathlib import Path


def check_writable(path: Path) -> None:
    """Check that a file can be written, without changing it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(f"{path}: expected a file, got a folder")
    if not _is_special(path):
        with tempfile.TemporaryFile(dir=path.parent):
            pass


def write_whole(path: Path, text: str) -> None:
    """Write a file under a temporary name, and rename it when it is complete."""
    if _is_special(path):
        path.write_text(text, encoding="utf-8")
        return
    target = path.resolve()  # a link stays a link
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    """Whether the path exists and is not a regular file, such as a terminal. It is not replaced."""
    return path.exists() and not path.is_file()
