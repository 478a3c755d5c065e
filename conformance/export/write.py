"""Writes the suite as files to judge by, in one of several forms."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

from attnspec import SpecError
from attnspec.backends import DTYPES
from attnspec.conformance.export import formats
from attnspec.conformance.export.calls import ExportedCall, exported_calls
from attnspec.conformance.sizes.cases import sized_cases
from attnspec.conformance.suite.group import Item

SIZES, LEFT_OUT = "sizes.json", "left_out.txt"

#: The forms, by name. Each writes cases to a folder and returns their number.
FORMATS: Mapping[str, Callable[[Iterable[ExportedCall], Path], int]] = MappingProxyType(
    {
        "raw": formats.write_raw,
        "json": formats.write_lines,
        "npz": formats.write_npz,
        "safetensors": formats.write_safetensors,
        "onnx": formats.write_onnx,
    }
)


@dataclass(frozen=True)
class Export:
    """The counts of an export."""

    calls: int  # the calls that were written
    left_out: tuple[str, ...]  # the names of the cases and relations that no comparison of arrays can judge


def write(
    items: Iterable[Item],
    folder: Path,
    form: str,
    dtypes: Sequence[str] = (),
    *,
    most: int | None = None,
) -> Export:
    """Write the cases of the suite with their expected values and allowed errors.

    Parameters
    ----------
    items : iterable of Case and Relation
    folder : Path
        Created if it does not exist.
    form : str
        A name in `FORMATS`.
    dtypes : sequence of str, optional
        The dtypes to write; the default is all.
    most : int, optional
        The most elements that the arrays and outputs of a call may have; the default is no limit.

    Raises
    ------
    SpecError
        If the form is unknown, or needs a library that is not installed.
    """
    if form not in FORMATS:
        raise SpecError(f"format: expected one of {', '.join(FORMATS)}, got {form!r}")
    folder.mkdir(parents=True, exist_ok=True)
    left_out: list[str] = []

    def shown() -> Iterator[ExportedCall]:
        for call in exported_calls(items, dtypes or DTYPES):
            if isinstance(call, ExportedCall) and (most is None or elements(call) <= most):
                yield call
            else:
                left_out.append(call.name)

    calls = FORMATS[form](shown(), folder)
    (folder / LEFT_OUT).write_text("".join(f"{name}\n" for name in left_out), encoding="ascii", newline="\n")
    _write_sizes(folder / SIZES)
    return Export(calls, tuple(left_out))


def elements(call: ExportedCall) -> int:
    """Return the number of elements of the arrays and outputs of a call."""
    outputs = (output.expected for output in call.outputs)
    return sum(array.size for array in (*call.arrays().values(), *outputs))


def _write_sizes(path: Path) -> None:
    """List the calls by formula, whose arrays every program makes itself (``spec/generator.md``)."""
    entries = [
        {
            "name": item.name,
            "rules": list(item.rules),
            "dtype": item.dtype,
            "layout": dict(item.layout),
            "formula": asdict(item.formula),
        }
        for item in sized_cases()
    ]
    path.write_text(json.dumps({**formats.head(), "cases": entries}) + "\n", encoding="ascii", newline="\n")
