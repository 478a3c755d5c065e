"""How the interface of a function differs from the canonical one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from attnspec import OPERATIONS
from attnspec.backends.errors import BackendError
from attnspec.backends.user.lists import BLOCKS, LISTS
from attnspec.backends.user.scales import FLAT, FLOAT8, GRANULARITIES, GROUP, INT8, SCALES, UINT8
from attnspec.backends.user.shapes import check_shapes
from attnspec.operations.aliases import meant_in

Layout = Literal["BHSD", "BSHD", "BS(HD)", "SBHD"]
#: The layouts of the arrays. In `PACKED`, heads and depth share an axis.
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
PACKED: Layout = "BS(HD)"
POSITIONS_FIRST: Layout = "SBHD"
#: Those that need a batch and heads.
OF_FOUR_AXES = (PACKED, POSITIONS_FIRST)
#: A result that is none of the standard's.
OTHER = "_"
#: The sizes that a function may take as arguments, and whether query heads share key heads.
SIZES = ("batch", "query_heads", "key_heads", "queries", "keys", "depth", "value_depth", "shared_heads")
#: Those that a function of packed rows, of pages or of codes may take too.
OF_FORMS = ("longest_queries", "longest_keys", "page", GROUP)
#: What describes attention alone.
_OF_ATTENTION = (
    *("loop", "mask_of_keys", "mask_of_entries", "least_mask_axes", "past"),
    *("output_layout", "module", "causal_in_mask"),
)


@dataclass(frozen=True)
class Convention:
    """How the interface of a function differs from the canonical one.

    Each field has the name of its key in an ``attnspec.toml`` (``conformance/configuration.md``).
    """

    #: Canonical name to the function's name, for arguments whose names differ. Mask and bias may share a
    #: name if the function tells them apart by their dtype, and query, key and value if it takes them in one.
    names: Mapping[str, str] = field(default_factory=dict)
    layout: Layout = "BHSD"
    #: The layout of its output, if it is another one.
    output_layout: Layout | Literal[""] = ""
    #: The layout of its lse, if it has heads after positions: ``(*B, L, Hq)``.
    lse_layout: Literal["", "BSHD"] = ""
    #: What True in a mask means to the function, or ``add`` if it adds a mask of numbers to the scores.
    mask: Literal["attend", "ignore", "add"] = "attend"
    #: The number of axes that its arrays must have, if it takes only one number. Arrays with fewer get
    #: leading axes of length one; a call with more is unsupported.
    axes: int | None = None
    #: Whether a call with more axes is made once for each batch entry, and with two axes for each head too.
    loop: bool = False
    #: A size of the call, in `SIZES`, to the parameter that takes it, such as the number of heads.
    sizes: Mapping[str, str] = field(default_factory=dict)
    #: The number of axes of its mask and bias, which get leading axes of length one; or of its mask of
    #: blocks, whose axes are whole. One of blocks with an axis more is passed in a call for each batch entry.
    mask_axes: int | None = None
    #: The fewest axes of its mask and bias.
    least_mask_axes: int | None = None
    #: Whether its mask and bias must have an entry for each query and key, and get copies along these axes.
    mask_pairs: bool = False
    #: Whether a mask or a bias of three axes has those of batch entries, not of heads.
    mask_of_entries: bool = False
    #: Whether its mask has one boolean for each key, `(*B, S)`, or may ``also`` have one.
    mask_of_keys: bool | Literal["also"] = False
    #: The parameters for the keys and the values before the queries. A query offset is passed as these.
    #: They have heads before positions if heads and depth share an axis.
    past: tuple[str, ...] = ()
    #: Its results, if they do not depend on ``return_lse`` and ``return_weights``, or those of a call with
    #: one of these flags, if it is in `names`. Those called `OTHER` are left out.
    returns: tuple[str, ...] = ()
    #: The number that opens a side of a window, if None does not.
    open_side: int | None = None
    #: How it takes a window: both sides, or as one number. This is the keys before the position of a query
    #: (`left`), the same with that position (`keys`), or the keys on either side (`both`).
    window: Literal["sides", "left", "keys", "both"] = "sides"
    #: Flags that it always applies. A call without such a flag is unsupported. A flag that the function has
    #: no parameter for is not passed.
    always: Mapping[str, Any] = field(default_factory=dict)
    #: Options to pass in every call, because the default of the function is not the specified one. A call
    #: without the option passes the specified default. Options that the function requires are always passed.
    given: tuple[str, ...] = ()
    #: Its parameters without a default that take None where a call does not have the argument.
    takes_none: tuple[str, ...] = ()
    #: Its flags that are the contrary of an argument, and parameters with the value that each call passes.
    inverse: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    #: The parameter for a module, of which it reads sizes and flags. A name such as ``module.is_causal`` is
    #: that of an attribute.
    module: str = ""
    #: Whether causality beside a mask or a bias has to be written into these.
    causal_in_mask: bool = False
    #: Whether a length or an offset must be an array with a number for each batch entry.
    per_entry: bool = False
    #: Whether the last query is at the last key of the length, also where `key_lengths` are given. An offset
    #: that says this is not passed; a call with another one is unsupported.
    at_length: bool = False
    #: Whether it writes new keys into its pages, of which it gets copies (NUM-4).
    writes: bool = False
    #: Whether it takes one query of each sequence, without an axis of positions, or with one (``axis``).
    one_query: bool | Literal["axis"] = False
    #: The parameter for the slopes of ALiBi, if it takes these in place of a bias. A bias of other numbers is
    #: unsupported.
    slopes: str = ""
    #: Whether the slopes raise the scores of keys after the query. A bias without causality is unsupported.
    signed_slopes: bool = False
    #: The shapes of arrays of a form whose axes it has in another order or joined, such as ``Dc, Hq*D``.
    shapes: Mapping[str, str] = field(default_factory=dict)
    #: The axes of lists of blocks, in `LISTS`, if it takes a list for each query, and no blocks of queries.
    lists: str = ""
    #: What has a scale of its own, if it takes scales of codes in one shape, of `GRANULARITIES` or `FLAT`.
    scales: str = ""
    #: The encoding of the codes that it takes, if it takes only one. The argument is not passed.
    encoding: str = ""
    #: Whether it takes codes as integers, or as arrays of a dtype of 8 bits (`FLOAT8`).
    codes: str = ""
    #: Whether it takes integers other than codes in this dtype alone.
    integers: Literal["", "int32"] = ""
    #: Whether distances are counted from the last query and the last key, as the dialect of causality says.
    from_end: bool = False

    @property
    def options(self) -> dict[str, str]:
        """The options that the function expresses by parameters for others, and these parameters."""
        lengths = {"key_lengths": self.names.get("mask", "mask")} if self.mask_of_keys else {}
        return {"bias": self.slopes, **lengths} if self.slopes else lengths

    @property
    def expressed(self) -> tuple[str, ...]:
        """The arguments of a form that the function has no parameter for, and expresses all the same."""
        by = {"bias": self.slopes, "query_offset": self.at_length}
        by |= dict.fromkeys(("query_block", "block_mask"), self.lists)
        return tuple(name for name, expresses in by.items() if expresses)

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags by which a call has the results in `returns`."""
        return tuple(flag for output in self.returns if (flag := f"return_{output}") in self.names)

    @property
    def returned_always(self) -> tuple[str, ...]:
        """The options that ask for results that every call has."""
        others = (f"return_{output}" for output in self.returns[1:] if output != OTHER)
        return tuple(flag for flag in others if flag not in self.flags)

    def returned(self, wanted: Sequence[str]) -> Sequence[str]:
        """Return the results of a call from which some are wanted."""
        without = self.flags and not {f"return_{output}" for output in wanted}.intersection(self.flags)
        return wanted if without else self.returns or wanted

    @property
    def own_names(self) -> dict[str, str]:
        """The parameters that have other names than the arguments that they take."""
        return {ours: own for ours, own in {**self.names, **self.options}.items() if ours != own}

    @property
    def applied(self) -> dict[str, Any]:
        """The options that it always applies, the encoding of codes among them."""
        return {**self.always, **({"encoding": self.encoding} if self.encoding else {})}

    @property
    def others(self) -> tuple[str, ...]:
        """The parameters that the function is passed beside those in `names`."""
        return (*self.sizes.values(), *self.past, *filter(None, (self.slopes, self.module)))


def check_convention(name: str, convention: Convention, operation: str = "attention") -> None:
    """Check the fields of a convention of a function of attention, or of another operation."""
    form = OPERATIONS[operation]
    _check_names(name, convention.names, operation)
    _check_slopes(name, convention, operation)
    _check_codes(name, convention, operation)
    _check_lists(name, convention, operation)
    check_shapes(name, convention.shapes, form)
    alone = [key for key in _OF_ATTENTION if getattr(convention, key) != getattr(Convention(), key)]
    alone += ["layout"] if convention.layout in OF_FOUR_AXES else []
    for_masks = [key for key in ("mask_axes", "mask_pairs") if getattr(convention, key)]
    alone += for_masks if "block_mask" not in form.arguments else []
    if operation != "attention" and alone:
        raise BackendError(
            f"backend {name}: {operation}: expected no key of attention alone, got {', '.join(alone)}"
        )
    if convention.one_query and "packed" in form.layers:
        raise BackendError(f"backend {name}: one_query: expected an operation with a batch, got {operation}")
    for what, got, expected in (
        ("layout", convention.layout, LAYOUTS),
        ("output_layout", convention.output_layout, ("", *LAYOUTS)),
        ("integers", convention.integers, ("", "int32")),
        ("lse_layout", convention.lse_layout, ("", "BSHD")),
        ("mask", convention.mask, ("attend", "ignore", "add")),
        ("window", convention.window, ("sides", "left", "keys", "both")),
        ("axes", convention.axes, (None, 2, 3, 4) if convention.loop else (None, 3, 4)),
        ("mask_axes", convention.mask_axes, (None, 2, 3, 4, 5)),
        ("least_mask_axes", convention.least_mask_axes, (None, 2, 3)),
        ("one_query", convention.one_query, (False, True, "axis")),
        ("mask_of_keys", convention.mask_of_keys, (False, True, "also")),
        ("past", len(convention.past), (0, 2)),
        ("scales", convention.scales, ("", *GRANULARITIES, *FLAT)),
    ):
        if got not in expected:
            choices = " or ".join(str(choice) for choice in expected if choice not in (None, ""))
            raise BackendError(f"backend {name}: {what}: expected {choices}, got {got!r}")
    if convention.returns and (
        convention.returns[0] != "output" or not set(convention.returns) <= {*form.outputs, OTHER}
    ):
        raise BackendError(
            f"backend {name}: returns: expected output, then some of {', '.join(form.outputs[1:])}, {OTHER}, "
            f"got {convention.returns!r}"
        )
    wrong = [option for option in convention.given if option not in form.options]
    if wrong:
        raise BackendError(
            f"backend {name}: given: expected options of the specification, got {', '.join(map(str, wrong))}"
        )
    known = SIZES if operation == "attention" else (*SIZES, *OF_FORMS)
    wrong = [size for size in convention.sizes if size not in known]
    if wrong:
        raise BackendError(
            f"backend {name}: sizes: expected some of {', '.join(known)}, got {', '.join(wrong)}"
        )
    if convention.loop and convention.axes is None:
        raise BackendError(f"backend {name}: loop: expected axes beside it, got none")
    if convention.layout in OF_FOUR_AXES and convention.axes not in (None, 4):
        raise BackendError(
            f"backend {name}: axes: expected 4 with the layout {convention.layout}, got {convention.axes}"
        )


def _check_names(name: str, names: Mapping[str, str], operation: str) -> None:
    """Refuse unknown canonical names, and mappings in the wrong direction."""
    known = tuple(OPERATIONS[operation].parameters)
    wrong = [canonical for canonical in names if canonical not in known]
    turned = [canonical for canonical in wrong if names[canonical] in known]
    if turned:
        raise BackendError(
            f'backend {name}: names: expected ours = "yours", got {turned[0]} = "{names[turned[0]]}"; '
            f'write {names[turned[0]]} = "{turned[0]}"'
        )
    if wrong or not all(isinstance(native, str) for native in names.values()):
        guesses = [
            f"{word} ({' or '.join(meant_in(operation, word))}?)" if meant_in(operation, word) else word
            for word in wrong
        ]
        raise BackendError(
            f"backend {name}: names: expected canonical names ({', '.join(known)}), "
            f"got {', '.join(guesses) or dict(names)}"
        )


def _check_slopes(name: str, convention: Convention, operation: str) -> None:
    """Refuse slopes beside a bias, and slopes of an operation that has none."""
    if not convention.slopes:
        return
    if "bias" not in OPERATIONS[operation].arguments or operation.endswith("_vjp"):
        raise BackendError(
            f"backend {name}: slopes: expected a forward operation with a bias, got {operation}"
        )
    if "bias" in convention.names:
        raise BackendError(
            f"backend {name}: slopes: expected no name of a bias beside it, got {convention.names['bias']}"
        )


def _check_codes(name: str, convention: Convention, operation: str) -> None:
    """Refuse what is about the codes and the scales of an operation that has none."""
    arguments = OPERATIONS[operation].arguments
    if convention.scales and not any(option.endswith(SCALES) for option in arguments):
        raise BackendError(f"backend {name}: scales: expected an operation with scales, got {operation}")
    for key in ("encoding", "codes"):
        if getattr(convention, key) and "encoding" not in arguments:
            raise BackendError(f"backend {name}: {key}: expected an operation over codes, got {operation}")
    known = arguments["encoding"].words if convention.encoding else ("",)
    for key, got, expected in (
        ("encoding", convention.encoding, known),
        ("codes", convention.codes, ("", FLOAT8, INT8, UINT8)),
    ):
        if got not in expected:
            choices = " or ".join(filter(None, expected))
            raise BackendError(f"backend {name}: {key}: expected {choices}, got {got!r}")


def _check_lists(name: str, convention: Convention, operation: str) -> None:
    """Refuse axes of lists of an operation that has none, and other axes."""
    got = convention.lists
    if got and not {*BLOCKS, "query", "key"} <= OPERATIONS[operation].arguments.keys():
        raise BackendError(f"backend {name}: lists: expected an operation over blocks, got {operation}")
    if got not in ("", *LISTS):
        choices = " or ".join(repr(choice) for choice in LISTS)
        raise BackendError(f"backend {name}: lists: expected {choices}, got {got!r}")


def mark_adapted(
    function: Callable[..., Any], convention: Convention, joined: Sequence[Sequence[str]] = ()
) -> None:
    """Mark a function as adapted, unless its convention only passes the options that it requires.

    The judge lays arrays that are passed joined in one. A bias that is passed as slopes has no gradient.
    """
    function.joined = joined  # type: ignore[attr-defined] # a function may have any attribute
    function.without_gradient = ("bias",) * bool(convention.slopes)  # type: ignore[attr-defined] # as above
    if convention != Convention():
        function.convention = convention  # type: ignore[attr-defined] # a function may have any attribute
