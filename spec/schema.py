"""Names for numbers that JSON cannot represent."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from attnspec.errors import SpecError
from attnspec.reading import parse_json, read_text

#: The names in golden vectors.
SPELLINGS: Mapping[str, float] = MappingProxyType(
    {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
)


def spell(number: float) -> float | str:
    """Return a number, or its name if JSON cannot represent it."""
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


VECTORS = Path(__file__).parent / "vectors"
SCHEMA = "vectors.schema.json"


def read(path: Path, *, complete: bool = True) -> dict[str, Any]:
    """Read one vector file as plain JSON and validate it against the schema."""
    # Imported here: `import attnspec` alone needs no schema validator.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    document = parsed(path)
    schema = json.loads((VECTORS / SCHEMA).read_text(encoding="utf-8"))
    if not complete:
        _waive_expected(schema)
    try:
        misfit = best_match(Draft202012Validator(schema).iter_errors(document))
    except RecursionError:
        raise SpecError(f"vectors: {path.name}: expected less nesting") from None
    if misfit is not None:
        where = "/".join(str(part) for part in misfit.absolute_path) or "the top"
        raise SpecError(f"vectors: {path.name} at {where}: {misfit.message}")
    for entry in document["cases"]:
        for name, tensor in _tensors(entry):
            size = math.prod(tensor["shape"])
            if size != len(tensor["data"]):
                raise SpecError(
                    f"case {entry['id']}: {name}: expected {size} numbers "
                    f"for shape {tuple(tensor['shape'])}, got {len(tensor['data'])}"
                )
    assert isinstance(document, dict)  # noqa: S101 - for the type checker: the schema says so
    return document


def parsed(path: Path) -> Any:
    """Read a file as JSON without NaN and infinity, and do not validate it."""
    try:
        return parse_json(read_text(path), constant=_refuse_constant)
    except (OSError, ValueError) as error:
        raise SpecError(f"vectors: {path.name} cannot be read as JSON ({error})") from error


def _waive_expected(schema: dict[str, Any]) -> None:
    case = schema["$defs"]["case"]
    del case["oneOf"]
    case["properties"]["alternatives"]["items"]["required"] = ["rule", "variant"]


def _tensors(entry: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return every array of a case in the form of the file, with its name."""
    groups = [entry["arguments"], entry.get("expected", {})]
    groups += [alternative.get("expected", {}) for alternative in entry.get("alternatives", ())]
    return [(name, thing) for group in groups for name, thing in group.items() if isinstance(thing, dict)]


def _refuse_constant(text: str) -> float:
    raise ValueError(f"expected {text} in quotes, got the bare word")
