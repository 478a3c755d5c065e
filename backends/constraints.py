"""Constraints of an implementation on every call: axes, depths, lengths, heads, constant options."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from attnspec import OPERATIONS
from attnspec.backends.errors import Unsupported
from attnspec.backends.preconditions import PRECONDITIONS, breach_of
from attnspec.operations import Argument
from attnspec.operations.letters import BATCH, HEADS, value_of
from attnspec.operations.operation import primal
from attnspec.sizes import bound

#: The constraint of an implementation that takes one call at a time (ERR-13), which no case is about.
SERIAL = "serial"
#: Stands before the suffix in the names of cases that are generated to fit.
FITTED = "+"

_OPERATION = OPERATIONS["attention"]
_SUFFIX = re.compile(
    r"(?!$)(a[34])?(-?d[1-9]\d*(\.[1-9]\d*)*)?(-?l[1-9]\d*)?(-?s[1-9]\d*)?(-?equal(\.(heads|depths|lengths|blocks|widths))+)?(-?always(\.\w+)+)?"
    r"(-?one\.query)?(-?scales\.\w+)?(-?encoding\.\w+)?(-?lists\.key)?(-?window\.(both|left))?"
    r"(-?keys\.enough)?(-?bias\.query)?(-?slopes\.(signed\.)?(start|end))?"
    rf"(-?requires(\.({'|'.join(PRECONDITIONS)}))+)?(-?{SERIAL})?"
)


@dataclass(frozen=True)
class Constraints:
    """Constraints on the calls that an implementation takes, of attention and of its companions.

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
    one_query : bool
        Whether a function of a form takes only one query of each sequence.
    lengths : {"any", "equal", "enough"}
        ``equal`` if there must be as many keys as queries, ``enough`` if at least as many, of each sequence.
    slopes : {"", "start", "end", "signed.start", "signed.end"}
        Set if it takes slopes of ALiBi in place of a bias: from where distances are counted in a call
        without an offset.
    scales : {"", "tensor", "shared", "head", "token"}
        Set if it takes scales of codes in one shape: what has a scale of its own.
    encoding : str
        The encoding of codes that it takes, if it takes only one.
    lists : {"", "key"}
        ``key`` if it takes lists of blocks of key heads.
    square_blocks : bool
        Whether blocks have as many queries as keys.
    one_width : bool
        Whether tokens, queries, values and the output have one width.
    window : {"sides", "both", "left"}
        ``both`` if a window has as many keys on both sides, ``left`` if its right side is 0 or causality.
    requires : tuple of str
        What it requires of the numbers in a call, as in `attnspec.backends.preconditions`.

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
    one_query: bool = False
    lengths: Literal["any", "equal", "enough"] = "any"
    slopes: Literal["", "start", "end", "signed.start", "signed.end"] = ""
    scales: Literal["", "tensor", "shared", "head", "token"] = ""
    encoding: str = ""
    lists: Literal["", "key"] = ""
    square_blocks: bool = False
    one_width: bool = False
    window: Literal["sides", "both", "left"] = "sides"
    requires: tuple[str, ...] = ()

    @property
    def suffix(self) -> str:
        """The suffix of the names of cases that are generated to fit; empty without constraints."""
        queries, keys = self.multiple
        equal = (
            ("heads", self.heads == "equal"),
            ("depths", self.value_depth == "key"),
            ("lengths", self.lengths == "equal"),
            ("blocks", self.square_blocks),
            ("widths", self.one_width),
        )
        alike = [name for name, holds in equal if holds]
        on = [name for name, value in self.always.items() if value is True]
        parts = (
            f"a{self.axes}" if self.axes else "",
            "d" + ".".join(map(str, self.depths)) if self.depths else "",
            f"l{queries}" if queries > 1 else "",
            f"s{keys}" if keys > 1 else "",
            "equal." + ".".join(alike) if alike else "",
            "always." + ".".join(on) if on else "",
            "one.query" if self.one_query else "",  # with a point: what ends as `-one` is read as a dtype
            f"scales.{self.scales}" if self.scales else "",
            f"encoding.{self.encoding}" if self.encoding else "",
            "lists.key" if self.lists else "",
            f"window.{self.window}" if self.window != "sides" else "",
        )
        return "-".join(part for part in parts if part)

    @property
    def others(self) -> str:
        """The constraints that no case is generated to fit, as a suffix has them."""
        parts = (
            "keys.enough" if self.lengths == "enough" else "",
            "bias.query" if self.bias_dtype == "query" else "",
            f"slopes.{self.slopes}" if self.slopes else "",
            f"requires.{'.'.join(self.requires)}" if self.requires else "",
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
        parts |= {"one": "", "scales": "", "encoding": "", "lists": ""}
        parts |= {"window": "sides", "keys": "", "bias": "any", "slopes": "", "requires": ()}
        if not _SUFFIX.fullmatch(suffix):
            raise ValueError(f"case: expected a suffix such as +d64.128-s16, got +{suffix}")
        for part in suffix.removesuffix(SERIAL).strip("-").split("-") if suffix != SERIAL else ():
            if part.startswith(
                ("one.", "scales.", "encoding.", "lists.", "window.", "keys.", "bias.", "slopes.")
            ):
                parts[part.partition(".")[0]] = part.partition(".")[2]
            elif part.startswith("requires"):
                parts["requires"] = tuple(part.split(".")[1:])
            elif part.startswith("always"):
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
            parts["bias"],
            one_query=bool(parts["one"]),
            lengths="equal" if "lengths" in parts["equal"] else parts["keys"] or "any",
            slopes=parts["slopes"],
            scales=parts["scales"],
            encoding=parts["encoding"],
            lists=parts["lists"],
            square_blocks="blocks" in parts["equal"],
            one_width="widths" in parts["equal"],
            window=parts["window"],
            requires=parts["requires"],
        )


#: The axes of the arrays of multi-head attention that may have one width.
WIDTHS = ("Hq*D", "Hq*Dv", "E", "E'", "F")
#: No constraints.
ANY = Constraints()


#: The letters of shapes that each field is about; ``multiple`` has one number for each.
_DEPTHS, _LENGTHS, _HEADS = ("D", "Dv"), ("L", "S"), ("Hq", "Hkv")


def fields_about(operation: str) -> tuple[str, ...]:
    """Name the fields that can exclude calls of an operation, which its arrays or options decide.

    Examples
    --------
    >>> from attnspec.backends.constraints import fields_about
    >>> fields_about("rotary"), fields_about("paged_attention")
    (('depths',), ('always', 'depths', 'multiple', 'heads', 'value_depth', 'one_query'))
    """
    letters = {letter for argument in _arrays(operation) for letter in argument.shape}
    declared = OPERATIONS[operation]
    about = {
        "axes": primal(operation) == "attention",
        "always": is_of_attention(operation),
        "depths": bool(letters.intersection(_DEPTHS)),
        "multiple": bool(letters.intersection(_LENGTHS)),
        "lengths": letters.issuperset(_LENGTHS),
        "heads": letters.issuperset(_HEADS),
        "value_depth": letters.issuperset(_DEPTHS),
        "one_query": bool(declared.layers) and "packed" not in declared.layers,
        "encoding": "encoding" in declared.arguments,
    }
    return tuple(field for field, decides in about.items() if decides)


def is_of_attention(operation: str) -> bool:
    """Whether an operation is attention, a form of it, or the gradients of one."""
    return primal(OPERATIONS[operation].reduces or operation) == "attention"


def fits(constraints: Constraints, arguments: Mapping[str, Any], operation: str = "attention") -> str:
    """Return the reason that a call of an operation violates constraints; empty if it does not."""
    sizes: dict[str, list[int]] = {}
    for argument in _arrays(operation):
        shape = getattr(arguments.get(argument.name), "shape", ())
        # Batch axes and heads may be lacking; a call with fewer axes than that is malformed.
        if len(shape) < len([letter for letter in argument.shape if letter not in (BATCH, *HEADS)]):
            return ""
        for place, letter in enumerate(reversed(argument.shape), start=1):
            sizes.setdefault(letter, []).append(shape[-place] if place <= len(shape) else 1)
    misfit = _shape_misfit(constraints, sizes) or _slope_misfit(constraints, arguments)
    misfit = misfit or _length_misfit(constraints, arguments, sizes)
    misfit = (
        misfit or _scale_misfit(constraints, arguments) or _width_misfit(constraints, arguments, operation)
    )
    if other := other_encoding(constraints, arguments, operation):
        misfit = misfit or f"takes only codes of {constraints.encoding}, got {other}"
    misfit = misfit or _list_misfit(constraints, arguments, sizes) or _block_misfit(constraints, arguments)
    misfit = misfit or breach_of(constraints.requires, arguments)
    if is_of_attention(operation):
        misfit = misfit or _option_misfit(constraints, arguments)
    if misfit or not set(_OPERATION.arrays) <= set(OPERATIONS[operation].arrays):
        return misfit
    return _axes_misfit(constraints, arguments) or _bias_misfit(constraints, arguments)


def other_encoding(constraints: Constraints, arguments: Mapping[str, Any], operation: str) -> str:
    """Return the encoding of the codes of a call if it is not the one that is taken; empty otherwise."""
    declared = OPERATIONS[operation].arguments.get("encoding")
    if declared is None or not constraints.encoding:
        return ""
    encoding = arguments.get("encoding", declared.default)
    return "" if encoding == constraints.encoding else str(encoding)


def _arrays(operation: str) -> list[Argument]:
    """Return the arrays of an operation whose shapes do not depend on a convention."""
    declared = OPERATIONS[operation]
    return [declared.arguments[name] for name in declared.arrays if not declared.arguments[name].turns]


def _axes_misfit(constraints: Constraints, arguments: Mapping[str, Any]) -> str:
    axes = max(arguments[name].ndim for name in _OPERATION.arrays)
    if constraints.axes is None or axes <= constraints.axes:
        return ""
    return f"takes only arrays of {constraints.axes} axes, got {axes}"


def _shape_misfit(constraints: Constraints, sizes: Mapping[str, Sequence[int]]) -> str:
    for size in (size for letter in _DEPTHS for size in sizes.get(letter, ())):
        if constraints.depths and size not in constraints.depths:
            said = " or ".join(map(str, constraints.depths))
            return f"takes only depths of {said}, got {size}"
    depths, value_depths = (sizes.get(letter, ()) for letter in _DEPTHS)
    if constraints.value_depth == "key" and depths and value_depths and value_depths[0] != depths[-1]:
        return f"takes only values of the keys' depth, got {value_depths[0]} for {depths[-1]}"
    for what, letter, multiple in zip(("queries", "keys"), _LENGTHS, constraints.multiple, strict=True):
        if wrong := [size for size in sizes.get(letter, ()) if size % multiple]:
            return f"takes only multiples of {multiple} {what}, got {wrong[0]}"
    if constraints.one_query and (several := [size for size in sizes.get("L", ()) if size != 1]):
        return f"takes one query of each sequence, got {several[0]}"
    queries, keys = (sizes.get(letter, ()) for letter in _LENGTHS)
    if constraints.lengths == "equal" and queries and keys and queries[0] != keys[0]:
        return f"takes only as many keys as queries, got {keys[0]} for {queries[0]}"
    heads, key_heads = (sizes.get(letter, ()) for letter in _HEADS)
    if constraints.heads == "equal" and heads and key_heads and heads[0] != key_heads[0]:
        return f"takes only as many key heads as query heads, got {key_heads[0]} for {heads[0]}"
    return ""


def _length_misfit(
    constraints: Constraints, arguments: Mapping[str, Any], sizes: Mapping[str, Sequence[int]]
) -> str:
    """Say that a sequence has fewer keys than queries, by the arrays, their boundaries or the lengths."""
    if constraints.lengths == "any" or not sizes.get("L"):
        return ""
    import numpy as np

    if constraints.lengths == "equal":
        same = np.array_equal(*(arguments.get(f"{what}_starts", ()) for what in ("query", "key")))
        return "" if same else "takes only sequences of as many keys as queries, got others"
    queries, keys = np.array(sizes["L"][:1]), np.array(sizes.get("S", ())[:1], int)
    lengths, new = arguments.get("key_lengths"), getattr(arguments.get("new_key"), "shape", (0, 0))[-2]
    try:
        if "query_starts" in arguments:
            queries = np.diff(arguments["query_starts"])
        if "key_starts" in arguments:
            keys = np.diff(arguments["key_starts"])
        keys = keys if lengths is None else np.concatenate([keys, np.ravel(lengths) + new])
        fewer = keys < queries
    except (TypeError, ValueError):  # the call is malformed, which is for the function to say
        return ""
    if not fewer.any():
        return ""
    number = int(keys[fewer.argmax()])
    return f"takes only at least as many keys as queries of a sequence, got {number} keys"


def _list_misfit(
    constraints: Constraints, arguments: Mapping[str, Any], sizes: Mapping[str, Sequence[int]]
) -> str:
    from attnspec.backends.user.lists import differ_in_a_group

    heads, key_heads = ([*sizes.get(letter, ()), 1][0] for letter in _HEADS)
    if not constraints.lists or not differ_in_a_group(arguments, heads // max(key_heads, 1)):
        return ""
    return "takes lists of blocks of key heads, got some that differ in a group"


def _block_misfit(constraints: Constraints, arguments: Mapping[str, Any]) -> str:
    queries, keys = (arguments.get(f"{what}_block") for what in ("query", "key"))
    if not constraints.square_blocks or queries == keys:
        return ""
    return f"takes only blocks of as many queries as keys, got {queries} and {keys}"


def _width_misfit(constraints: Constraints, arguments: Mapping[str, Any], operation: str) -> str:
    if not constraints.one_width or "output_weight" not in OPERATIONS[operation].arrays:
        return ""
    sizes = bound(operation, arguments)[0].letters
    widths = [size for letter in WIDTHS if (size := value_of(letter, sizes)) is not None]
    if others := [width for width in widths if width != widths[0]]:
        return f"takes only weights of one width, got {widths[0]} and {others[0]}"
    return ""


def _bias_misfit(constraints: Constraints, arguments: Mapping[str, Any]) -> str:
    bias, dtype = arguments.get("bias"), arguments["query"].dtype
    if constraints.bias_dtype == "query" and bias is not None and bias.dtype != dtype:
        return f"takes only a bias of the query's dtype, got {bias.dtype} for {dtype}"
    return ""


def _option_misfit(constraints: Constraints, arguments: Mapping[str, Any]) -> str:
    for name, value in constraints.always.items():
        given = arguments.get(name, _OPERATION.arguments[name].default)
        if given is not value and given != value:
            return f"always applies {name} = {value}, got {given}"
    return ""


def _slope_misfit(constraints: Constraints, arguments: Mapping[str, Any]) -> str:
    from attnspec.backends.user.slopes import slopes_of

    if not constraints.slopes or arguments.get("bias") is None or "query" not in arguments:
        return ""
    try:
        slopes_of(arguments, from_end=constraints.slopes.endswith("end"))
    except Unsupported as error:
        return str(error)
    causal = arguments.get("is_causal") is True or not constraints.slopes.startswith("signed")
    return "" if causal else "takes slopes of signed distances, which causal calls alone have as a bias"


def _scale_misfit(constraints: Constraints, arguments: Mapping[str, Any]) -> str:
    from attnspec.backends.user.scales import misfit_of

    return misfit_of(constraints.scales, arguments) if constraints.scales else ""
