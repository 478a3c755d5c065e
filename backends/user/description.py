"""What `attnspec init` is told about a function, and what it infers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from attnspec.backends.backend import Backend
from attnspec.backends.user.convention import PACKED, Convention

#: The layouts in words.
PLACES = {
    "BHSD": "heads before positions",
    "BSHD": "heads after positions",
    PACKED: "heads and depth in one axis",
    "SBHD": "positions before the batch",
}


@dataclass(frozen=True)
class Known:
    """The keys of a configuration that is there before the function is called; they are not inferred."""

    convention: Convention = field(default_factory=Convention)
    keys: frozenset[str] = frozenset()
    depths: tuple[int, ...] = ()

    def choices(self, key: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the values to try for a key: the one that is known, or all."""
        return (getattr(self.convention, key),) if key in self.keys else values


@dataclass(frozen=True)
class Inference:
    """The inferred description of a function."""

    convention: Convention
    #: Variants that it shows, by rule.
    dialect: Mapping[str, Any] = field(default_factory=dict)
    #: Parameters without a canonical argument, or whose behaviour does not match their name.
    ignore: tuple[str, ...] = ()
    #: The reason for each key of the configuration.
    why: Mapping[str, str] = field(default_factory=dict)
    #: The tried depths that it takes; empty if it takes the first.
    depths: tuple[int, ...] = ()
    #: Other keys about what it takes: ``heads``, ``value_depth``, ``dtypes``.
    limits: Mapping[str, Any] = field(default_factory=dict)
    #: The deviations that it shows, as a configuration has them.
    deviations: tuple[Mapping[str, Any], ...] = ()


def dtypes_to_try(preferred: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    """Return the dtypes of calls in the order in which they are tried: float32 first."""
    first = ("float32",) if "float32" in preferred else ()
    return tuple(dict.fromkeys((*first, *preferred, *others)))


def dtypes_of(backend: Backend, known: Known) -> tuple[str, ...]:
    """Return the dtypes of calls: those that are known, or those of the library too."""
    return dtypes_to_try(backend.dtypes, () if "dtypes" in known.keys else backend.array_library.dtypes)


def infer_dtypes(
    backend: Backend, dtype: str, takes: Callable[..., bool], why: dict[str, str]
) -> dict[str, Any]:
    """Return the dtypes that a function takes, if they are not those of its library by default.

    A function that does not take all of these may be made for others, which right results show.
    """
    outside = dtype not in backend.dtypes
    asked = dtypes_to_try(backend.dtypes, backend.array_library.dtypes if outside else ())
    taken = [name for name in asked if takes(name)]
    if not taken or (len(taken) == len(asked) and not outside):
        return {}
    others = (name for name in backend.array_library.dtypes if name not in asked)
    taken += [name for name in others if takes(name, right=True)]
    why["dtypes"] = "it raised an error or returned float32 in the other dtypes of its library"
    return {"dtypes": taken}
