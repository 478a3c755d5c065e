"""Constraints of an implementation on every call: axes, depths, lengths, heads, constant options."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from attnspec import OPERATIONS

_OPERATION = OPERATIONS["attention"]
_SUFFIX = re.compile(
    r"(?!$)(a[34])?(-?d\d+(\.\d+)*)?(-?l\d+)?(-?s\d+)?(-?equal(\.(heads|depths))+)?(-?always(\.\w+)+)?"
)


@dataclass(frozen=True)
class Constraints:
    """Constraints on the calls of attention that an implementation takes.

    Attributes
    ----------
    axes : int or None
        The number of axes of query, key and value, if it takes only one number. Arrays with
        fewer get leading axes of length one.
    depths : tuple of int
        The depths that it takes; empty for any.
    multiple : tuple of int
        The numbers of queries and of keys must be multiples of these.
    heads : {"grouped", "equal"}
        ``equal`` if there must be as many key heads as query heads.
    always : mapping
        Options that it always applies, with their values.
    value_depth : {"any", "key"}
        ``key`` if the values must have the depth of the keys.
    bias_dtype : {"any", "query"}
        ``query`` if the bias must have the dtype of the query.

    Examples
    --------
    >>> from attnspec.backends.constraints import Constraints
    >>> Constraints(depths=(64, 128), multiple=(1, 16)).suffix
    'd64.128-s16'
    """

    axes: int | None = None
    depths: tuple[int, ...] = ()
    multiple: tuple[int, int] = (1, 1)
    heads: Literal["grouped", "equal"] = "grouped"
    always: Mapping[str, Any] = field(default_factory=dict, hash=False)
    value_depth: Literal["any", "key"] = "any"
    bias_dtype: Literal["any", "query"] = "any"

    @property
    def suffix(self) -> str:
        """The suffix of the names of cases that are generated to fit; empty without constraints."""
        queries, keys = self.multiple
        equal = (("heads", self.heads == "equal"), ("depths", self.value_depth == "key"))
        alike = [name for name, holds in equal if holds]
        on = [name for name, value in self.always.items() if value is True]
        parts = (
            f"a{self.axes}" if self.axes else "",
            "d" + ".".join(map(str, self.depths)) if self.depths else "",
            f"l{queries}" if queries > 1 else "",
            f"s{keys}" if keys > 1 else "",
            "equal." + ".".join(alike) if alike else "",
            "always." + ".".join(on) if on else "",
        )
        return "-".join(part for part in parts if part)

    @classmethod
    def of_suffix(cls, suffix: str) -> "Constraints":
        """Parse a suffix, as far as it determines the generated cases.

        Raises
        ------
        ValueError
            If the suffix is invalid.
        """
        parts: dict[str, Any] = {"a": None, "depths": (), "l": 1, "s": 1, "equal": [], "always": {}}
        if not _SUFFIX.fullmatch(suffix):
            raise ValueError(f"case: expected a suffix such as +d64.128-s16, got +{suffix}")
        for part in suffix.split("-"):
            if part.startswith("always"):
                parts["always"] = dict.fromkeys(part.split(".")[1:], True)
            elif part.startswith("equal"):
                parts["equal"] = part.split(".")[1:]
            elif part.startswith("d"):
                parts["depths"] = tuple(int(depth) for depth in part[1:].split("."))
            else:
                parts[part[0]] = int(part[1:])
        return cls(
            parts["a"],
            parts["depths"],
            (parts["l"], parts["s"]),
            "equal" if "heads" in parts["equal"] else "grouped",
            parts["always"],
            "key" if "depths" in parts["equal"] else "any",
        )


#: No constraints.
ANY = Constraints()


def fits(constraints: Constraints, arguments: Mapping[str, Any]) -> str:
    """Return the reason that a call of attention violates constraints; empty if it does not."""
    arrays = [arguments.get(name) for name in _OPERATION.arrays]
    if not all(getattr(array, "ndim", 0) > 1 for array in arrays):
        return ""
    return _of_shapes(constraints, *arrays) or _of_options(constraints, arguments)


def _of_shapes(constraints: Constraints, query: Any, key: Any, value: Any) -> str:
    axes = max(array.ndim for array in (query, key, value))
    if constraints.axes is not None and axes > constraints.axes:
        return f"takes only arrays of {constraints.axes} axes, got {axes}"
    for array in (query, key, value):
        if constraints.depths and array.shape[-1] not in constraints.depths:
            said = " or ".join(map(str, constraints.depths))
            return f"takes only depths of {said}, got {array.shape[-1]}"
    if constraints.value_depth == "key" and value.shape[-1] != key.shape[-1]:
        return f"takes only values of the keys' depth, got {value.shape[-1]} for {key.shape[-1]}"
    for what, array, multiple in zip(("queries", "keys"), (query, key), constraints.multiple, strict=True):
        if array.shape[-2] % multiple:
            return f"takes only multiples of {multiple} {what}, got {array.shape[-2]}"
    heads, key_heads = ((1, *array.shape)[-3] for array in (query, key))
    if constraints.heads == "equal" and heads != key_heads:
        return f"takes only as many key heads as query heads, got {key_heads} for {heads}"
    return ""


def _of_options(constraints: Constraints, arguments: Mapping[str, Any]) -> str:
    bias, dtype = arguments.get("bias"), arguments["query"].dtype
    if constraints.bias_dtype == "query" and bias is not None and bias.dtype != dtype:
        return f"takes only a bias of the query's dtype, got {bias.dtype} for {dtype}"
    for name, value in constraints.always.items():
        given = arguments.get(name, _OPERATION.arguments[name].default)
        if given is not value and given != value:
            return f"always applies {name} = {value}, got {given}"
    return ""
