"""The formats of exported cases: text with raw arrays, JSON, npz, safetensors and ONNX."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from attnspec import SpecError, __version__, find_rule, levels
from attnspec.backends import Unsupported
from attnspec.citations import anchor
from attnspec.conformance.export.calls import ExportedCall
from attnspec.golden import spelled

VERSION = 1


@dataclass(frozen=True)
class Citation:
    """A rule as files cite it."""

    id: str
    level: str
    link: str  # relative to the repository
    levels: tuple[str, ...]  # the levels of the standard that list the rule


def cite(rule: str) -> Citation:
    """Return how files cite a rule."""
    found = find_rule(rule)
    own = tuple(level.name for level in levels() if rule in (*level.rules, *level.where_offered))
    return Citation(found.id, found.level, f"spec/{found.chapter}.md#{anchor(found)}", own)


def options(call: ExportedCall) -> Iterator[tuple[str, str, Any]]:
    """Yield the name, the kind and the value of each argument that is no array and not None.

    The kinds are ``flag``, ``integer``, ``number``, ``word`` and ``pair``.
    """
    for name, given in call.arguments.items():
        if isinstance(given, np.ndarray) or given is None:
            continue
        thing = given.item() if isinstance(given, np.generic) else given
        kind = next(
            word
            for kinds, word in (
                (bool, "flag"),
                (int, "integer"),
                (float, "number"),
                (str, "word"),
                (tuple | list, "pair"),
            )
            if isinstance(thing, kinds)
        )
        yield name, kind, thing


def arrays(call: ExportedCall) -> Mapping[str, np.ndarray[Any, Any]]:
    """Return the arguments that are arrays."""
    return {name: thing for name, thing in call.arguments.items() if isinstance(thing, np.ndarray)}


def head() -> Mapping[str, Any]:
    """Return what an index says about the export."""
    return {"format": VERSION, "attnspec": __version__}


INDEX, ARRAYS = "cases.txt", "arrays.bin"
HEADER = Path(__file__).with_name("attnspec.h")
#: Each array starts at a multiple of this number of octets, so that a program can map the file.
_ALIGNED = 16


def write_raw(calls: Iterable[ExportedCall], folder: Path) -> int:
    """Write cases to a folder, with the header that reads them, and return their number."""
    number = 0
    with (
        (folder / INDEX).open("w", encoding="ascii", newline="\n") as index,
        (folder / ARRAYS).open("wb") as to,
    ):
        index.write(f"attnspec {head()['format']} {head()['attnspec']}\n")
        for call in calls:
            number += 1
            index.writelines(f"{line}\n" for line in _lines(call, to))
        index.write(f"cases {number}\n")
    (folder / HEADER.name).write_bytes(HEADER.read_bytes())
    return number


def _lines(call: ExportedCall, to: BinaryIO) -> Iterator[str]:
    yield f"case {call.name} {call.operation} {call.dtype}"
    for rule in map(cite, call.rules):
        yield f"rule {rule.id} {rule.level} {rule.link} {' '.join(rule.levels)}".rstrip()
    yield " ".join(("refusal", call.refusal, *call.at_fault))
    for name, kind, thing in options(call):
        yield f"{kind} {name} {_word(thing)}"
    for name, array in arrays(call).items():
        yield f"array {name} {array.dtype.name} {_place(array, to)} {_shape(array)}"
    for output in call.outputs:
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


INDEX_TENSORS = "cases.json"
LINES = "cases.jsonl"


def write_lines(calls: Iterable[ExportedCall], folder: Path) -> int:
    """Write each case as a line of JSON with all its arrays, and return the number of cases."""
    number = 0
    with (folder / LINES).open("w", encoding="ascii", newline="\n") as to:
        to.write(json.dumps(head()) + "\n")
        for call in calls:
            number += 1
            entry = describe(call) | {"arrays": spelled(arrays(call))}
            for output in call.outputs:
                values = {"expected": output.expected, "allowed": output.allowed}
                entry["outputs"][output.name] |= spelled(values)
            to.write(json.dumps(entry, allow_nan=False) + "\n")
    return number


def write_npz(found: Iterable[ExportedCall], folder: Path) -> int:
    """Write the arrays of each chapter as one file of NumPy, and an index.

    NumPy reads a bfloat16 array back as two bytes for each element.
    """
    return _write(
        found, folder, "npz", lambda path, tensors: np.savez(path, allow_pickle=False, **dict(tensors))
    )


def write_safetensors(found: Iterable[ExportedCall], folder: Path) -> int:
    """Write the arrays of each chapter as one file of safetensors, and an index."""
    try:
        from safetensors.numpy import save_file
    except ModuleNotFoundError as error:
        raise SpecError("format: safetensors is not installed; pip install 'attnspec[vectors]'") from error
    return _write(found, folder, "safetensors", lambda path, tensors: save_file(dict(tensors), path))


def describe(call: ExportedCall) -> dict[str, Any]:
    """Describe a case without its arrays."""
    return {
        "name": call.name,
        "title": call.title,
        "operation": call.operation,
        "dtype": call.dtype,
        "rules": [
            {"id": rule.id, "level": rule.level, "link": rule.link, "levels": list(rule.levels)}
            for rule in map(cite, call.rules)
        ],
        "refusal": call.refusal,
        "at_fault": list(call.at_fault),
        "options": spelled({name: thing for name, _, thing in options(call)}),
        "outputs": {output.name: {"dtypes": list(output.dtypes)} for output in call.outputs},
    }


def _write(
    calls: Iterable[ExportedCall],
    folder: Path,
    kind: str,
    save: Callable[[Path, Mapping[str, NDArray[Any]]], None],
) -> int:
    entries = []
    for chapter, cases in groupby(calls, key=lambda call: call.chapter):
        tensors: dict[str, NDArray[Any]] = {}
        place = folder / f"{chapter}.{kind}"
        for call in cases:
            entries.append(describe(call) | {"file": place.name})
            parts = {f"arguments/{name}": array for name, array in arrays(call).items()}
            for output in call.outputs:
                parts[f"expected/{output.name}"] = output.expected
                parts[f"allowed/{output.name}"] = output.allowed
            tensors |= {f"{call.name}/{name}": np.array(array, order="C") for name, array in parts.items()}
        if place.exists():
            raise SpecError(
                f"cases: expected those of {chapter} one after the other, got others between them"
            )
        save(place, tensors)
    (folder / INDEX_TENSORS).write_text(
        json.dumps({**head(), "cases": entries}, indent=1, allow_nan=False) + "\n",
        encoding="ascii",
        newline="\n",
    )
    return len(entries)


if TYPE_CHECKING:
    from onnx import ModelProto

#: The operator sets of Attention, the oldest first: a case is written in the first that has its options.
_OPSETS = (23, 24, 25)
_DATA = "test_data_set_0"


def write_onnx(calls: Iterable[ExportedCall], folder: Path) -> int:
    """Write the cases that the node Attention can express, and return their number.

    Each folder has ``model.onnx`` and ``test_data_set_0`` with ``input_0.pb`` and so on, ``output_0.pb``, as
    ONNX's own tests have, and ``allowed_0.pb`` beside it, the allowed error of each element in float64. The
    expected output is rounded to the dtype of the output.
    """
    try:
        import onnx
        from onnx import numpy_helper
    except ModuleNotFoundError as error:
        raise SpecError("format: onnx is not installed; pip install onnx") from error
    number = 0
    for call in calls:
        made = _model(call)
        if made is None:
            continue
        model, inputs = made
        number += 1
        data = folder / call.name / _DATA
        data.mkdir(parents=True)
        onnx.save(model, folder / call.name / "model.onnx")
        (output,) = (output for output in call.outputs if output.name == "output")
        with np.errstate(over="ignore"):
            rounded = output.expected.astype(call.dtype)
        tensors = {f"input_{place}": inputs[named.name] for place, named in enumerate(model.graph.input)}
        tensors |= {"output_0": rounded, "allowed_0": output.allowed}
        for name, array in tensors.items():
            title = "Y" if name == "output_0" else name
            octets = numpy_helper.from_array(np.ascontiguousarray(array), title).SerializeToString()
            (data / f"{name}.pb").write_bytes(octets)
        text = f"{call.name}: {call.title}\nrules: {', '.join(call.rules)}\n"
        (folder / call.name / "case.txt").write_text(text, encoding="utf-8", newline="\n")
    return number


def _model(call: ExportedCall) -> "tuple[ModelProto, dict[str, NDArray[Any]]] | None":
    """Return the model of a case, or None if no node of ONNX can express the call."""
    from attnspec.backends.adapters.onnx import onnx_model

    judged = any(output.name == "output" for output in call.outputs)
    if call.operation != "attention" or call.refusal != "never" or not judged:
        return None
    if any(np.ndim(call.arguments[name]) != 4 for name in ("query", "key", "value")):
        return None
    for opset in _OPSETS:
        try:
            # ONNX's reference does not repeat a mask along the axes of queries and keys as its text says.
            return onnx_model(call.arguments, opset=opset, whole_masks=True)
        except Unsupported:
            continue
    return None
