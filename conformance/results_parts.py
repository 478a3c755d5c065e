"""Takes a line of results apart, so that the schema is applied once to each part that it can tell apart.

Applying the schema takes ten times as long as reading. The schema restricts the names of an object and each
of its values, and relates no two values. So a line is valid if each of its parts was part of a valid line.
"""

from collections.abc import Iterator, Mapping
from typing import Any

#: The keywords of a schema under which any value of a type and a sign is as good as another.
_OPEN = frozenset({"description", "type", "minimum", "items"})


def parts(thing: Any, free: frozenset[str]) -> Iterator[Any]:
    """Yield the parts of a line: the names in each object, and each value or what matters of it.

    Examples
    --------
    >>> from attnspec.conformance.results_parts import parts
    >>> lines = [{"case": case, "status": "pass"} for case in ("a", "b", 3)]
    >>> first, second, third = ({*parts(one, frozenset({"case"}))} for one in lines)
    >>> first == second, first == third
    (True, False)
    """
    yield from _parts(thing, free, (), is_free=False)


def _parts(thing: Any, free: frozenset[str], path: tuple[str, ...], *, is_free: bool) -> Iterator[Any]:
    if isinstance(thing, dict):
        yield path, "object", frozenset(thing)
        for name, value in thing.items():
            within = is_free or name in free
            if within and isinstance(value, str):  # most values, so that they are told without a call
                yield (*path, name), str, False
            else:
                yield from _parts(value, free, (*path, name), is_free=within)
    elif isinstance(thing, list):
        yield path, "array"
        place = (*path, "[]")
        if is_free and all(isinstance(value, str) for value in thing):
            yield place, str, False
            return
        for value in thing:
            yield from _parts(value, free, place, is_free=is_free)
    elif isinstance(thing, float):
        yield path, float, thing < 0, thing.is_integer()  # 3.0 is an integer to a schema
    elif is_free:
        yield path, type(thing), isinstance(thing, int) and thing < 0
    else:
        yield path, type(thing), thing


def free_in(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the properties that a schema restricts to types and signs wherever it names them.

    Examples
    --------
    >>> from attnspec.conformance.results_parts import free_in
    >>> of = {"case": {"type": "string"}, "status": {"enum": ["pass"]}, "sizes": {"items": {"minimum": 0}}}
    >>> sorted(free_in({"properties": of}))
    ['case', 'sizes']
    """
    found: dict[str, bool] = {}
    for name, its in _properties(schema):
        found[name] = found.get(name, True) and _is_open(its)
    return frozenset(name for name, is_free in found.items() if is_free)


def _is_open(schema: Mapping[str, Any]) -> bool:
    return (
        set(schema) <= _OPEN
        and "object" not in schema.get("type", ())
        and schema.get("minimum", 0) == 0
        and ("items" not in schema or _is_open(schema["items"]))
    )


def _properties(schema: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every property that a schema names, at any depth."""
    if isinstance(schema, Mapping):
        yield from schema.get("properties", {}).items()
        for part in schema.values():
            yield from _properties(part)
