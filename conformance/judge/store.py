"""The file with the expected values of the fixed suite.

`attnspec vectors expected` computes them with the exact oracle and checks that the second oracle
agrees. Values that are not in the file (another seed, a dialect) come from the second oracle.
"""

import io
import zipfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = Mapping[str, NDArray[np.float64]]

PATH = Path(__file__).parents[1] / "suite" / "expected.npz"


def find(fingerprint: str) -> dict[str, Any] | None:
    """Return the exact values of a call by its fingerprint, or None if the file lacks it.

    Examples
    --------
    >>> from attnspec.conformance.judge.store import find
    >>> find("of no call") is None
    True
    """
    place = _index().get(fingerprint)
    if place is None:
        return None
    names, shapes, numbers = _columns()
    values, (start, stop, offset) = {}, place
    for row in range(start, stop):
        shape = tuple(int(size) for size in shapes[row] if size >= 0)
        count = int(np.prod(shape))
        array = numbers[offset : offset + count].reshape(shape)
        values[str(names[row])] = array
        offset += count
    return values


def written(entries: Iterable[tuple[str, Values]]) -> bytes:
    """Return the bytes of the file. They are the same for the same entries on every machine."""
    keys, names, shapes, numbers = [], [], [], []
    for fingerprint, values in sorted(entries, key=lambda entry: entry[0]):
        for name, array in values.items():
            keys.append(fingerprint)
            names.append(name)
            shapes.append([*array.shape, *[-1] * (_AXES - array.ndim)])
            numbers.append(np.ascontiguousarray(array, dtype="<f8").ravel())
    columns = {
        "keys": np.array(keys, dtype="S24"),
        "names": np.array(names, dtype="S16"),
        "shapes": np.array(shapes, dtype="<i4"),
        "numbers": np.concatenate(numbers),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, column in columns.items():
            part = io.BytesIO()
            np.save(part, column)
            # A fixed date, so that the bytes depend only on the numbers.
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), part.getvalue(), zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()


#: The most axes that an output has.
_AXES = 6


@cache
def _columns() -> tuple[NDArray[np.str_], NDArray[np.int32], NDArray[np.float64]]:
    with np.load(PATH) as file:
        numbers = file["numbers"]
        numbers.flags.writeable = False
        return file["names"].astype(str), file["shapes"], numbers


@cache
def _index() -> Mapping[str, tuple[int, int, int]]:
    """Return for each fingerprint the rows of its outputs and the start of their numbers."""
    if not PATH.exists():
        return {}
    with np.load(PATH) as file:
        keys, shapes = file["keys"].astype(str), file["shapes"]
    counts = np.where(shapes < 0, 1, shapes).prod(axis=1)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    found: dict[str, tuple[int, int, int]] = {}
    for row, key in enumerate(keys.tolist()):
        start, _, offset = found.get(key, (row, row, int(offsets[row])))
        found[key] = (start, row + 1, offset)
    return found
