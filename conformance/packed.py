"""Reads text files that may be compressed with xz or gzip."""

import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

#: The largest number of bytes that a compressed file may expand to.
MOST = 2**29
#: The largest amount of memory that the decompressor of xz may use. ``xz -9`` needs 65 MiB.
_MEMORY = 2**28
#: The suffixes of results files. The last two are those of compressed ones.
SUFFIXES = (".jsonl", ".jsonl.xz", ".jsonl.gz")


class _Decompressor(Protocol):
    """What the decompressors of both formats have in common."""

    @property
    def eof(self) -> bool:
        """Whether the end of the compressed data was reached."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What follows the compressed data."""
        ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Expand data to at most a number of bytes."""
        ...


_FORMATS: dict[str, Callable[[], _Decompressor]] = {
    ".xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY),
    ".gz": lambda: zlib.decompressobj(wbits=31),
}


def text_of(path: Path, most: int = MOST) -> str:
    r"""Return the text of a file. A file that ends in ``.xz`` or ``.gz`` is decompressed.

    Examples
    --------
    >>> import lzma, tempfile
    >>> from pathlib import Path
    >>> from attnspec.conformance.packed import text_of
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "some.jsonl.xz")
    ...     number = path.write_bytes(lzma.compress(b"one line\n"))
    ...     text_of(path)
    'one line\n'
    """
    data = path.read_bytes()
    make = _FORMATS.get(path.suffix)
    return (data if make is None else _expanded(make(), data, most)).decode("utf-8")


def bare(path: Path) -> str:
    """Return the name of a results file without its folder and suffixes.

    Examples
    --------
    >>> from pathlib import Path
    >>> from attnspec.conformance.packed import bare
    >>> bare(Path("results/torch-2.13.0.jsonl.xz")), bare(Path("run.jsonl")), bare(Path("run-2.13"))
    ('torch-2.13.0', 'run', 'run-2')
    """
    for suffix in SUFFIXES:
        if path.name.endswith(suffix):
            return path.name.removesuffix(suffix)
    return path.stem


def _expanded(decompressor: _Decompressor, data: bytes, most: int) -> bytes:
    """Expand data that must be one whole stream."""
    try:
        found = decompressor.decompress(data, most + 1)
    except (lzma.LZMAError, zlib.error) as error:
        raise ValueError(f"it cannot be decompressed: {error}") from error
    if len(found) > most:
        raise ValueError(f"it expands to more than {most} bytes")
    if not decompressor.eof or decompressor.unused_data:
        raise ValueError("expected one whole compressed stream, got a part or several")
    return found
