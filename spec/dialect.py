"""Declared variants: of a rule, of a rule in some dtypes, or of rows that one route leaves empty."""

from collections.abc import Mapping
from typing import Any

#: The routes by which keys are disallowed: by a bias alone, or by any other argument.
ROUTES = ("mask", "bias")
#: The rules that may have another variant for each route.
BY_ROUTE = ("MASK-6",)


def in_dtype(dialect: Mapping[str, Any], dtype: str) -> dict[str, str]:
    """Return the variants of a dialect that apply in a dtype, by rule.

    Variants by route are written as one text, which `of_routes` reads. A rule holds in the dtypes
    and for the routes that are not declared.
    """
    results = {}
    for rule, said in dialect.items():
        if isinstance(said, str):
            results[rule] = said
        elif set(said) <= set(ROUTES):
            variants = dict.fromkeys(said.values())
            whole = len(said) == len(ROUTES) and len(variants) == 1
            results[rule] = next(iter(variants)) if whole else _written(said)
        elif dtype in said:
            results[rule] = said[dtype]
    return results


def _written(said: Mapping[str, str]) -> str:
    return ", ".join(f"{route}: {said[route]}" for route in ROUTES if route in said)


def of_routes(variant: str) -> dict[str, str]:
    """Return the variant of each route. A route of which the rule holds is left out."""
    if ": " in variant:
        results = {}
        for part in variant.split(", "):
            route, name = part.split(": ")
            results[route] = name
        return results
    return dict.fromkeys(ROUTES, variant) if variant else {}


def described(dialect: Mapping[str, Any]) -> dict[str, str]:
    """Return the text for each declared rule."""
    return {
        rule: said if isinstance(said, str) else ", ".join(f"{key}: {name}" for key, name in said.items())
        for rule, said in dialect.items()
    }


def fault_of(dialect: Any, variants: Mapping[str, tuple[str, ...]], dtypes: tuple[str, ...]) -> str:
    """Say what was expected of a declaration and what it has instead. Return an empty text if it is good."""
    if not isinstance(dialect, Mapping):
        return f"expected a mapping of rule ids to variants, got {dialect!r}"
    for rule, said in dialect.items():
        if rule not in variants:
            return f"expected a mapping of rule ids to variants, got the rule {rule!r}, which has none"
        named = [said] if not isinstance(said, Mapping) else list(said.values())
        wrong = next((variant for variant in named if variant not in variants[rule]), None)
        if wrong is not None or not named:
            return f"{rule}: expected {' or '.join(variants[rule])}, got {wrong if named else said!r}"
        if isinstance(said, Mapping) and (fault := _fault_of_keys(rule, set(said), dtypes)):
            return f"{rule}: expected {fault}"
    return ""


def _fault_of_keys(rule: str, keys: set[Any], dtypes: tuple[str, ...]) -> str:
    routes = ROUTES if rule in BY_ROUTE else ()
    if keys <= set(dtypes) or keys <= set(routes):
        return ""
    known = f"some of the dtypes {', '.join(dtypes)}"
    known += f" or of the routes {', '.join(routes)}" if routes else ""
    foreign = sorted(map(str, keys - set(dtypes) - set(routes)))
    return f"{known}, got {', '.join(map(repr, foreign or sorted(map(str, keys))))}"
