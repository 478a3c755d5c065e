"""Cases: the golden vectors of `spec/vectors`, each one call with its proven values."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import ml_dtypes  # noqa: F401 - makes "bfloat16" a name that NumPy knows
import numpy as np
from numpy.typing import NDArray

from attnspec.errors import SpecError
from attnspec.operations import OPERATIONS
from attnspec.rule import CHAPTERS

VECTORS = Path(__file__).parent / "vectors"
SCHEMA = "vectors.schema.json"

#: JSON has no spelling for these numbers; the vectors have.
SPELLINGS: Mapping[str, float] = MappingProxyType(
    {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
)

Statistic = Literal["value", "shape", "variance", "disallowed"]


@dataclass(frozen=True)
class Provenance:
    """Where a case comes from: its source, and how its inputs were obtained."""

    source: str
    inputs: str


GENERATED = Provenance("the suite", "drawn by a seeded generator")


@dataclass(frozen=True)
class Figure:
    """Numbers that a worked example prints, to be met at their printed precision.

    Attributes
    ----------
    example, cell : str
        Which worked example, and which of its cells: ``"004"``, ``"In [13]"``.
    of : str
        What is printed: an argument or an output of the case, or
        ``variant/output`` for an alternative.
    text : tuple of str
        The numbers as printed, in row-major order.
    select : tuple of int
        Leading indices into the array, where only a part of it is printed.
    transposed : bool
        Whether the last two axes are swapped in the print.
    statistic : {"value", "shape", "variance", "disallowed"}
        What of it is printed; ``disallowed`` is 1 where a boolean mask is False.
    places : int or None
        Digits after the point (of the mantissa, where there is an exponent)
        that are known although trailing zeros are not printed; None means just
        those that are.
    cut : bool
        Whether the print breaks off: the numbers are the first ones, and of the
        last only the first digits are there.
    """

    example: str
    cell: str
    of: str
    text: tuple[str, ...]
    select: tuple[int, ...] = ()
    transposed: bool = False
    statistic: Statistic = "value"
    places: int | None = None
    cut: bool = False


@dataclass(frozen=True)
class Alternative:
    """The values that a named variant of a rule gives for a case.

    A backend that declares the variant must give them; any other must not.
    """

    rule: str
    variant: str
    expected: Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Misuse:
    """A call that must be refused, and the argument at fault.

    Attributes
    ----------
    argument : str
        The one at fault.
    named : tuple of str
        What else the error may name instead: arguments that do not fit each other.
    allowed : bool
        Whether the call may be computed too; then it has expected values.
    """

    argument: str
    named: tuple[str, ...] = ()
    allowed: bool = False


@dataclass(frozen=True)
class Case:
    """One call: its arguments, the rules it bears on, and what it must give.

    Attributes
    ----------
    id : str
        Permanent: never renamed, never used again.
    title : str
        What it shows, in a few words.
    chapter : str
        The chapter it stands under, as in `attnspec.CHAPTERS`.
    operation : str
        The function called, as in `attnspec.OPERATIONS`.
    rules : tuple of str
        The rules it bears on, the one it is there for first.
    arguments : mapping of str to array, number, bool, str, tuple or None
        Everything to call it with, by canonical name. Arrays are read-only; a
        window is a tuple.
    expected : mapping of str to array
        By output name, each element the float64 nearest to the exact value.
        Empty for a misuse.
    alternatives : tuple of Alternative
        What the variants of its rules give instead.
    misuse : Misuse or None
        Set when the call must be refused.
    figures : tuple of Figure
        The printed numbers that it answers for.
    provenance : Provenance
        Where it comes from.
    group : str
        What the generated cases of one kind have in common; empty for a golden vector.
    outputs : tuple of str
        The outputs that are judged; all where empty.
    layout : mapping of str to str
        How arguments lie in memory, where it is not in rows: by name, such as ``transposed``.
    """

    id: str
    title: str
    chapter: str
    operation: str
    rules: tuple[str, ...]
    arguments: Mapping[str, Any]
    provenance: Provenance = GENERATED
    expected: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    alternatives: tuple[Alternative, ...] = ()
    misuse: Misuse | None = None
    figures: tuple[Figure, ...] = ()
    group: str = ""
    outputs: tuple[str, ...] = ()
    layout: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.id

    @cached_property
    def dtype(self) -> str:
        """That of its first array, in which it is judged."""
        arrays = (self.arguments.get(name) for name in OPERATIONS[self.operation].arrays)
        return next((str(array.dtype) for array in arrays if isinstance(array, np.ndarray)), "")

    @property
    def name(self) -> str:
        """Its id and its dtype, which together tell it from every other case."""
        return f"{self.id}-{self.dtype}"

    @cached_property
    def fingerprint(self) -> str:
        """What it has in common with every call of the same operation on the same numbers, in any dtype."""
        return fingerprint(self.operation, self.arguments)


def fingerprint(operation: str, arguments: Mapping[str, Any]) -> str:
    """Digest a call: equal for equal numbers, whatever dtype holds them.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.case import fingerprint
    >>> calls = [{"query": np.ones((1, 2), dtype), "scale": 2.0} for dtype in ("float16", "float64")]
    >>> fingerprint("scores", calls[0]) == fingerprint("scores", calls[1])
    True
    """
    digest = blake2b(operation.encode(), digest_size=12)
    for name in sorted(arguments):
        thing = arguments[name]
        digest.update(f"\0{name}\0".encode())
        if isinstance(thing, np.ndarray):
            exact = thing.dtype.kind in "biuc"
            numbers = np.ascontiguousarray(thing if exact else thing.astype(np.float64))
            digest.update(f"{thing.shape} {numbers.dtype.kind}\0".encode() + numbers.tobytes())
        else:
            digest.update(f"{type(thing).__name__} {thing!r}".encode())
    return digest.hexdigest()


@cache
def cases(folder: Path = VECTORS) -> tuple[Case, ...]:
    """Every golden vector, chapter by chapter.

    Parameters
    ----------
    folder : Path, optional
        Where the vector files are; by default those of the standard.

    Raises
    ------
    SpecError
        When a file there is malformed, of no chapter, or repeats an id.

    Examples
    --------
    >>> from attnspec import cases
    >>> case = cases()[0]
    >>> case.chapter, case.operation
    ('notation', 'attention')
    """
    found: list[Case] = []
    for path in sorted(folder.glob("*.json"), key=_reading_order):
        if path.name != SCHEMA:
            # Our own are held against the schema by the linter and the tests: here it would take a second.
            found.extend(load(path, validated=folder == VECTORS))
    if not found:
        raise SpecError(f"vectors: got no vector file in {folder.name}/, expected CHAPTER.json")
    ids = [case.id for case in found]
    for twice in sorted({id_ for id_ in ids if ids.count(id_) > 1}):
        raise SpecError(f"case {twice}: got {ids.count(twice)} cases of this id, expected one")
    return tuple(found)


def find_case(case_id: str) -> Case:
    """Return the golden vector of that id.

    Raises
    ------
    SpecError
        When there is none.

    Examples
    --------
    >>> from attnspec import find_case
    >>> find_case("scores-000").expected["scores"].shape
    (3, 3)
    """
    for case in cases():
        if case.id == case_id:
            return case
    near = ", ".join(get_close_matches(case_id, [case.id for case in cases()], cutoff=0))
    raise SpecError(f"case: got {case_id!r}, expected an id such as {near}")


def load(path: Path, *, validated: bool = False) -> list[Case]:
    """Read the cases of one vector file.

    Parameters
    ----------
    path : Path
    validated : bool, optional
        Whether the file is known to fit the schema.

    Raises
    ------
    SpecError
        When the file cannot be read or does not fit the schema.
    """
    if path.stem not in CHAPTERS:
        raise SpecError(
            f"vectors: got file {path.name}, expected the name of a chapter ({', '.join(CHAPTERS)})"
        )
    document = _parsed(path) if validated else read(path)
    return [case_of(path.stem, entry) for entry in document["cases"]]


def read(path: Path, *, complete: bool = True) -> dict[str, Any]:
    """Read one vector file as plain JSON and hold it against the schema.

    Parameters
    ----------
    path : Path
        The file.
    complete : bool, optional
        Whether the expected values must be there; a case that is being added has
        none yet.

    Raises
    ------
    SpecError
        When the file cannot be read or does not fit the schema.
    """
    # Imported here: `import attnspec` alone needs no schema validator.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    document = _parsed(path)
    schema = json.loads((VECTORS / SCHEMA).read_text(encoding="utf-8"))
    if not complete:
        _waive_expected(schema)
    misfit = best_match(Draft202012Validator(schema).iter_errors(document))
    if misfit is not None:
        where = "/".join(str(part) for part in misfit.absolute_path) or "the top"
        raise SpecError(f"vectors: {path.name} at {where}: {misfit.message}")
    for entry in document["cases"]:
        for name, tensor in _tensors(entry):
            size = int(np.prod(tensor["shape"]))
            if size != len(tensor["data"]):
                raise SpecError(
                    f"case {entry['id']}: {name}: got {len(tensor['data'])} numbers, "
                    f"expected {size} for shape {tuple(tensor['shape'])}"
                )
    assert isinstance(document, dict)  # noqa: S101 - for the type checker: the schema says so
    return document


def _parsed(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (OSError, ValueError) as error:
        raise SpecError(f"vectors: {path.name} cannot be read as JSON ({error})") from error


def _waive_expected(schema: dict[str, Any]) -> None:
    case = schema["$defs"]["case"]
    del case["oneOf"]
    case["properties"]["alternatives"]["items"]["required"] = ["rule", "variant"]


def decode(group: Mapping[str, Any]) -> Mapping[str, Any]:
    """Turn the arguments or values of a case, as a vector file spells them, into what to call with.

    Parameters
    ----------
    group : mapping
        By canonical name: arrays spelled out, numbers, lists, names, null.

    Returns
    -------
    mapping
        Read-only. Arrays are read-only arrays, lists are tuples, and the names in
        `SPELLINGS` are the numbers that they stand for.

    Examples
    --------
    >>> from attnspec.case import decode
    >>> dict(decode({"window": [2, None], "scale": "Infinity", "is_causal": True}))
    {'window': (2, None), 'scale': inf, 'is_causal': True}
    """
    return MappingProxyType({name: _decoded(thing) for name, thing in group.items()})


def _decoded(thing: Any) -> Any:
    if isinstance(thing, dict):
        return array(thing)
    if isinstance(thing, list):
        return tuple(thing)
    return SPELLINGS.get(thing, thing) if isinstance(thing, str) else thing


def spell(number: float) -> float | str:
    """Spell a number as a vector file does: as it is, or by name where JSON has no spelling.

    Examples
    --------
    >>> from attnspec.case import spell
    >>> spell(1.5), spell(float("-inf"))
    (1.5, '-Infinity')
    """
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def array(tensor: Mapping[str, Any]) -> NDArray[Any]:
    """Build the array that a vector file spells out, read-only."""
    numbers = [SPELLINGS[x] if isinstance(x, str) else x for x in tensor["data"]]
    result = np.array(numbers, dtype=tensor["dtype"]).reshape(tensor["shape"])
    result.flags.writeable = False
    return result


def _tensors(entry: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Every array of a case as it stands in the file, with its name."""
    groups = [entry["arguments"], entry.get("expected", {})]
    groups += [alternative.get("expected", {}) for alternative in entry.get("alternatives", ())]
    return [(name, thing) for group in groups for name, thing in group.items() if isinstance(thing, dict)]


def case_of(chapter: str, entry: Mapping[str, Any]) -> Case:
    """Make a case of an entry of a vector file, or of a file of that form."""
    misuse = entry.get("misuse")
    return Case(
        id=entry["id"],
        title=entry["title"],
        chapter=chapter,
        operation=entry["operation"],
        rules=tuple(entry["rules"]),
        arguments=decode(entry["arguments"]),
        provenance=Provenance(**entry["provenance"]),
        expected=decode(entry.get("expected", {})),
        alternatives=tuple(
            Alternative(other["rule"], other["variant"], decode(other["expected"]))
            for other in entry.get("alternatives", ())
        ),
        misuse=misuse and Misuse(**{**misuse, "named": tuple(misuse.get("named", ()))}),
        figures=tuple(_figure(figure) for figure in entry.get("figures", ())),
        group=entry.get("group", ""),
        outputs=tuple(entry.get("outputs", ())),
        layout=entry.get("layout", {}),
    )


def _figure(entry: Mapping[str, Any]) -> Figure:
    settled: dict[str, Any] = {
        name: tuple(thing) if isinstance(thing, list) else thing for name, thing in entry.items()
    }
    return Figure(**settled)


def _reading_order(path: Path) -> tuple[int, str]:
    place = CHAPTERS.index(path.stem) if path.stem in CHAPTERS else len(CHAPTERS)
    return place, path.name


def _refuse_constant(text: str) -> float:
    raise ValueError(f"got the bare word {text}, expected it in quotes")
