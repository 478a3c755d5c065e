"""The files with the expected values of the fixed suite.

`attnspec vectors expected` computes them with the exact oracle and checks that the second oracle
agrees. Values that are in no file (another seed, a dialect) come from the second oracle.

A clone has all of them, in a file for each chapter. An installed wheel has one file, with the values that
take long, and digests of the others: the second oracle computes these during the run, to the same bits.
"""

import io
import zipfile
from collections.abc import Mapping
from functools import cache, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = Mapping[str, NDArray[np.float64]]

#: Where a clone, or an editable install of it, has the values of each chapter.
FOLDER = Path(__file__).resolve().parents[1] / "suite" / "expected"
#: What a wheel has instead.
PACKAGED = Path(__file__).parents[1] / "suite" / "packaged.npz"
#: The most axes that an output has.
_AXES = 6
#: The bytes of a name, unless one needs more.
_NAME = 16


def find(fingerprint: str) -> dict[str, Any] | None:
    """Return the exact values of a call by its fingerprint, or None if no file has it."""
    place = _index().get(fingerprint)
    if place is None:
        return None
    path, rows = place
    names, shapes, offsets, numbers = _columns(path)
    return {
        names[row]: numbers[offsets[row] : offsets[row + 1]].reshape(
            [size for size in shapes[row] if size >= 0]
        )
        for row in rows
    }


def check(fingerprint: str, values: Values) -> None:
    """Require that computed values of a call have the digests of the proven ones, if those are known.

    Raises
    ------
    AssertionError
        If a value is another one.
    """
    for name, expected in digests().get(fingerprint, {}).items():
        if name in values and digest(values[name]) != expected:
            raise AssertionError(f"call {fingerprint}: {name}: expected the proven values, got others")


def digest(array: Any) -> int:
    """Return 32 bits that depend on each number of an array; all NaN and both zeros are alike."""
    numbers = np.where(np.isnan(array), np.nan, np.asarray(array, dtype="<f8") + 0.0)
    return int.from_bytes(blake2b(numbers.tobytes(), digest_size=4).digest(), "little")


@cache
def digests() -> Mapping[str, Mapping[str, int]]:
    """Return the digests of outputs by fingerprint and name, of the values that `PACKAGED` leaves out."""
    known: dict[str, dict[str, int]] = {}
    if PACKAGED.exists():
        with np.load(PACKAGED) as file:
            columns = (file[name] for name in ("digest_keys", "digest_names", "digests"))
            for key, name, number in zip(*(column.tolist() for column in columns), strict=True):
                known.setdefault(key.decode(), {})[name.decode()] = number
    return known


def forget() -> None:
    """Read the files again, because they have been written."""
    for known in (_index, _columns, digests):
        known.cache_clear()


def encode(entries: Mapping[str, Values], left_out: Mapping[str, Values] | None = None) -> bytes:
    """Return the bytes of a file, which depend only on the values by fingerprint, on zlib and on liblzma.

    Of the values that are left out it has the digests.
    """
    keys, names, shapes, numbers = [], [], [], []
    for fingerprint, values in sorted(entries.items()):
        for name, array in values.items():
            keys.append(fingerprint)
            names.append(name)
            shapes.append([*array.shape, *[-1] * (_AXES - array.ndim)])
            numbers.append(np.ascontiguousarray(array, dtype="<f8").ravel())
    columns = {
        "keys": np.array(keys, dtype="S24"),
        # NumPy cuts a longer name without a word.
        "names": np.array(names, dtype=f"S{max(_NAME, *map(len, names))}"),
        "shapes": np.array(shapes, dtype="<i4"),
        "numbers": np.concatenate(numbers),
    }
    if left_out is not None:
        rows = [(key, name, digest(x)) for key, own in sorted(left_out.items()) for name, x in own.items()]
        columns |= {
            "digest_keys": np.array([key for key, _, _ in rows], dtype="S24"),
            "digest_names": np.array([name for _, name, _ in rows], dtype="S"),
            "digests": np.array([number for _, _, number in rows], dtype="<u4"),
        }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, column in columns.items():
            part = io.BytesIO()
            np.save(part, column)
            # LZMA makes sorted keys a fifth smaller. It reads eight times as long, so numbers have zlib.
            method = zipfile.ZIP_LZMA if name == "digest_keys" else zipfile.ZIP_DEFLATED
            # A fixed date, so that the bytes depend only on the numbers.
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), part.getvalue(), method, 9)
    return buffer.getvalue()


def members(content: bytes) -> dict[str, bytes]:
    """Return the arrays of a file as they are written. Another zlib may compress them otherwise."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@cache
def _index() -> Mapping[str, tuple[Path, range]]:
    """Return for each fingerprint its file and the rows of its outputs there, which are adjacent."""
    index: dict[str, tuple[Path, range]] = {}
    for path in sorted(FOLDER.glob("*.npz")) or [PACKAGED]:
        with np.load(path) as file:
            keys = file["keys"]
        starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])).tolist()
        for key, start, end in zip(keys[starts].tolist(), starts, [*starts[1:], len(keys)], strict=True):
            index[key.decode()] = (path, range(start, end))
    return index


@lru_cache(maxsize=3)  # a run goes from chapter to chapter
def _columns(path: Path) -> tuple[list[str], list[list[int]], list[int], NDArray[np.float64]]:
    """Return the names and shapes of the outputs in a file, where the numbers of each start, and those."""
    with np.load(path) as file:
        names, shapes, numbers = file["names"].astype(str), file["shapes"], file["numbers"]
    numbers.flags.writeable = False
    counts = np.where(shapes < 0, 1, shapes).prod(axis=1)
    return names.tolist(), shapes.tolist(), [0, *np.cumsum(counts).tolist()], numbers
