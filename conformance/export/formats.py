"""The formats of exported cases: text with raw arrays, JSON, npz, safetensors and ONNX."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnspec import SpecError, __version__, find_rule, levels
from attnspec.backends import Unsupported
from attnspec.citations import anchor
from attnspec.conformance.export.calls import BY_DIGITS, ExportedCall, Output
from attnspec.dtypes import SHORT
from attnspec.golden import spelled
from attnspec.reference.budget.budget import Accuracy
from attnspec.schema import VECTORS

VERSION = 2


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


def head() -> Mapping[str, Any]:
    """Return what an index says about the export."""
    return {"format": VERSION, "attnspec": __version__}


INDEX, RULES = "cases.txt", "rules.txt"
HEADER = VECTORS.with_name("pack") / "attnspec.h"
#: Each array starts at a multiple of this number of octets, so that a program can map the file.
_ALIGNED = 8


def write_raw(
    calls: Iterable[ExportedCall], folder: Path, catches: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> int:
    """Write cases to a folder, with the header that reads them, and return their number.

    `catches` names the wrong implementations of the gallery that a case is there for.
    """
    number = 0
    begun: set[str] = set()
    ids: dict[str, None] = {}
    with (folder / INDEX).open("w", encoding="utf-8", newline="\n") as index:
        index.write(f"attnspec {head()['format']} {head()['attnspec']}\n")
        for chapter, of_chapter in groupby(calls, key=lambda call: call.chapter):
            index.write(f"chapter {chapter}\n")
            with (folder / f"{chapter}.bin").open("ab" if chapter in begun else "wb") as to:
                begun.add(chapter)
                places = _Places(to)
                for call in of_chapter:
                    number += 1
                    ids |= dict.fromkeys(call.rules)
                    index.writelines(f"{line}\n" for line in _lines(call, places, catches.get(call.name, ())))
        index.write(f"cases {number}\n")
    lines = ("\t".join(_rule_fields(rule)) for rule in ids)
    (folder / RULES).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    (folder / HEADER.name).write_bytes(HEADER.read_bytes())
    return number


def _rule_fields(rule: str) -> tuple[str, ...]:
    cited, found = cite(rule), find_rule(rule)
    sentence = " ".join(found.sentence.split())
    return cited.id, cited.level, cited.link, ",".join(cited.levels), found.title, sentence


def _lines(call: ExportedCall, places: "_Places", catches: Sequence[str]) -> Iterator[str]:
    yield f"case {call.name} {call.operation}"
    yield f"title {call.title}"
    yield f"dtypes {' '.join(call.dtypes)}"
    yield f"results {' '.join(call.results)}"
    for rule in map(cite, call.rules):
        yield f"rule {rule.id} {rule.level}"
    yield from (f"catches {name}" for name in catches)
    yield " ".join(("rejection", call.rejection, *call.at_fault))
    for name, kind, thing in options(call):
        yield f"{kind} {name} {_word(thing)}"
    for name, array in call.arrays().items():
        kind = call.kinds[name]
        yield f"array {name} {kind} {places.of(array if kind == 'own' else narrow(array))} {_shape(array)}"
    for name, layout in call.layout.items():
        yield f"layout {name} {' '.join(map(str, layout))}"
    for output in call.outputs:
        place = places.of(narrow(output.expected))
        yield f"output {output.name} {output.kind} {output.option or '-'} {place} {_shape(output.expected)}"
        for (dtype, accuracy), allowed in output.allowed.items():
            yield f"allowed {dtype} {accuracy} {places.of(narrow(allowed))}"
    yield "end"


def narrow(array: NDArray[Any]) -> NDArray[Any]:
    """Return equal numbers in the shortest dtype that holds them."""
    for name in BY_DIGITS:
        with np.errstate(over="ignore"):
            short = array.astype(name)
        if np.array_equal(short.astype(np.float64), array.astype(np.float64), equal_nan=True):
            return short
    return array


def _word(thing: Any) -> str:
    """Write a value as C reads it: 1 or 0 for a flag, two words for a pair, none for no bound."""
    if isinstance(thing, tuple | list):
        return " ".join(str(part).lower() for part in thing)
    if isinstance(thing, bool):
        return str(int(thing))
    return str(thing)


def _shape(array: NDArray[Any]) -> str:
    return " ".join(map(str, (array.ndim, *array.shape)))


@dataclass(frozen=True)
class _Places:
    """A file of arrays, each of which is stored once."""

    to: IO[bytes]
    known: dict[bytes, int] = field(default_factory=dict)

    def of(self, array: NDArray[Any]) -> str:
        """Write the elements of an array, little-endian and row-major, and return its dtype and place."""
        little = array if array.dtype.byteorder != ">" else array.astype(array.dtype.newbyteorder("<"))
        octets = np.ascontiguousarray(little).tobytes()
        digest = blake2b(octets).digest()
        if digest not in self.known:
            self.to.write(bytes(-self.to.tell() % _ALIGNED))
            self.known[digest] = self.to.tell()
            self.to.write(octets)
        return f"{array.dtype.name} {self.known[digest]}"


INDEX_TENSORS = "cases.json"
LINES = "cases.jsonl"


def write_lines(calls: Iterable[ExportedCall], folder: Path) -> int:
    """Write each case as a line of JSON with all its arrays, and return the number of cases."""
    number = 0
    with (folder / LINES).open("w", encoding="ascii", newline="\n") as to:
        to.write(json.dumps(head()) + "\n")
        for call in calls:
            number += 1
            entry = describe(call)
            for name, array in spelled(call.arrays()).items():
                entry["arrays"][name] |= array
            for output in call.outputs:
                written = entry["outputs"][output.name]
                written |= spelled({"expected": output.expected})
                written["allowed"] = spelled(_by_word(output))
            to.write(json.dumps(entry, allow_nan=False) + "\n")
    return number


def _by_word(output: Output) -> dict[str, NDArray[np.float64]]:
    """Name the allowed errors of an output by dtype and class, such as ``float16 cast``."""
    return {" ".join(key): allowed for key, allowed in output.allowed.items()}


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
        "dtypes": list(call.dtypes),
        "results": list(call.results),
        "rules": [
            {"id": rule.id, "level": rule.level, "link": rule.link, "levels": list(rule.levels)}
            for rule in map(cite, call.rules)
        ],
        "rejection": call.rejection,
        "at_fault": list(call.at_fault),
        "layout": {name: list(layout) for name, layout in call.layout.items()},
        "options": spelled({name: thing for name, _, thing in options(call)}),
        "arrays": {name: {"kind": call.kinds[name]} for name in call.arrays()},
        "outputs": {output.name: {"kind": output.kind, "option": output.option} for output in call.outputs},
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
            parts = {f"arguments/{name}": array for name, array in call.arrays().items()}
            for output in call.outputs:
                parts[f"expected/{output.name}"] = output.expected
                for (dtype, accuracy), allowed in output.allowed.items():
                    parts[f"allowed/{output.name}/{dtype}/{accuracy}"] = allowed
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
    for call, dtype in ((each, dtype) for each in calls for dtype in each.dtypes):
        made = _model(call, dtype)
        if made is None:
            continue
        model, inputs = made
        number += 1
        name = f"{call.name}+{dtype}"
        data = folder / name / _DATA
        data.mkdir(parents=True)
        onnx.save(model, folder / name / "model.onnx")
        (output,) = (output for output in call.outputs if output.name == "output")
        with np.errstate(over="ignore"):
            rounded = output.expected.astype(dtype)
        tensors = {f"input_{place}": inputs[named.name] for place, named in enumerate(model.graph.input)}
        tensors |= {"output_0": rounded, "allowed_0": output.allowed[dtype, _class_of(dtype)]}
        for file, array in tensors.items():
            title = "Y" if file == "output_0" else file
            octets = numpy_helper.from_array(np.ascontiguousarray(array), title).SerializeToString()
            (data / f"{file}.pb").write_bytes(octets)
        text = f"{call.name}: {call.title}\nrules: {', '.join(call.rules)}\n"
        (folder / name / "case.txt").write_text(text, encoding="utf-8", newline="\n")
    return number


def _class_of(dtype: str) -> Accuracy:
    """Return the class of budget that a node of ONNX is judged by."""
    return "cast" if dtype in SHORT else "full"


def _model(call: ExportedCall, dtype: str) -> "tuple[ModelProto, dict[str, NDArray[Any]]] | None":
    """Return the model of a case, or None if no node of ONNX can express the call."""
    from attnspec.backends.adapters.onnx import onnx_model

    judged = any(output.name == "output" for output in call.outputs)
    if call.operation != "attention" or call.rejection != "never" or not judged:
        return None
    arguments = {**call.arguments, **call.arrays(dtype)}
    if any(np.ndim(arguments[name]) != 4 for name in ("query", "key", "value")):
        return None
    for opset in _OPSETS:
        try:
            # ONNX's reference does not repeat a mask along the axes of queries and keys as its text says.
            return onnx_model(arguments, opset=opset, whole_masks=True)
        except Unsupported:
            continue
    return None
