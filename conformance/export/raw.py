"""The raw form: an index of lines of text, and one file with all arrays. ``attnspec.h`` reads it."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.export.index import arrays, cited, head, options
from attnspec.conformance.export.judged import Judged

INDEX, ARRAYS = "cases.txt", "arrays.bin"
HEADER = Path(__file__).with_name("attnspec.h")
#: Each array starts at a multiple of this number of octets, so that a program can map the file.
_ALIGNED = 16


def write(found: Iterable[Judged], folder: Path) -> int:
    """Write cases to a folder, with the header that reads them, and return their number.

    Parameters
    ----------
    found : iterable of Judged
    folder : Path
        Exists.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from attnspec.conformance.export.judged import judged
    >>> from attnspec.conformance.export.raw import write
    >>> from attnspec.conformance.suite import find
    >>> with TemporaryDirectory() as folder:
    ...     number = write(judged([find("masking-no-keys-float32")]), Path(folder))
    ...     lines = (Path(folder) / "cases.txt").read_text().splitlines()
    >>> lines[1]
    'case masking-no-keys-float32 attention float32'
    """
    number = 0
    with (
        (folder / INDEX).open("w", encoding="ascii", newline="\n") as index,
        (folder / ARRAYS).open("wb") as to,
    ):
        index.write(f"attnspec {head()['format']} {head()['attnspec']}\n")
        for one in found:
            number += 1
            index.writelines(f"{line}\n" for line in _lines(one, to))
        index.write(f"cases {number}\n")
    (folder / HEADER.name).write_bytes(HEADER.read_bytes())
    return number


def _lines(one: Judged, to: BinaryIO) -> Iterator[str]:
    yield f"case {one.name} {one.operation} {one.dtype}"
    for rule in map(cited, one.rules):
        yield f"rule {rule.id} {rule.level} {rule.link} {' '.join(rule.levels)}".rstrip()
    yield " ".join(("refusal", one.refusal, *one.at_fault))
    for name, kind, thing in options(one):
        yield f"{kind} {name} {_word(thing)}"
    for name, array in arrays(one).items():
        yield f"array {name} {array.dtype.name} {_place(array, to)} {_shape(array)}"
    for output in one.outputs:
        places = f"{_place(output.expected, to)} {_place(output.allowed, to)}"
        yield f"output {output.name} {','.join(output.dtypes)} {places} {_shape(output.expected)}"
    yield "end"


def _word(thing: Any) -> str:
    """Write a value as C reads it: 1 or 0 for a flag, two words for a pair, none for no bound."""
    if isinstance(thing, tuple | list):
        return " ".join(map(_word, thing))
    if isinstance(thing, bool):
        return str(int(thing))
    return "none" if thing is None else str(thing)


def _shape(array: NDArray[Any]) -> str:
    return " ".join(map(str, (array.ndim, *array.shape)))


def _place(array: NDArray[Any], to: BinaryIO) -> int:
    """Write the elements of an array, little-endian and row-major, and return where they start."""
    to.write(bytes(-to.tell() % _ALIGNED))
    place = to.tell()
    little = array if array.dtype.byteorder != ">" else array.astype(array.dtype.newbyteorder("<"))
    to.write(np.ascontiguousarray(little).tobytes())
    return place
