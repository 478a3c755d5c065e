"""Stacks: the operations that combine several forms, derived from the forms (STACK-1).

A form changes how a call is stored. `_packed`, `_paged`, `_coded`, `_of_blocks` and `_of_lists` each change
the declaration of any operation in that way, and a stack applies several of them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType

from attnspec.operations import forms, quantization
from attnspec.operations.attention import ATTENTION
from attnspec.operations.letters import BATCH
from attnspec.operations.operation import Argument, Operation, Shape

_SINCE = "2026.11.24"
#: The forms in the order of their words in a name, and those of which a call has one at most.
_WORDS = (("packed", ""), ("paged", ""), ("quantized", ""), ("block_sparse", "listed", ""), ("latent", ""))
#: The arrays that hold keys and values, and those of them that may be codes.
_HELD = {False: ("key", "value"), True: ("latent", "key_rotary")}
_CODED = {False: ("key", "value"), True: ("latent",)}
_REFUSED_HEADS = MappingProxyType({**quantization.REFUSED, "Hkv": "HEAD-2"})


@dataclass(frozen=True)
class _Draft:
    """A declaration that forms still change."""

    arrays: tuple[Argument, ...]
    own: tuple[Argument, ...]  # the named arguments of the forms
    options: tuple[Argument, ...]  # the options of attention
    latent: bool

    def named(self, name: str) -> Argument:
        """Return one of the arrays."""
        return next(array for array in self.arrays if array.name == name)

    def mapped(self, change: Callable[[Argument], Argument]) -> "_Draft":
        """Change every argument."""
        return replace(
            self,
            arrays=tuple(map(change, self.arrays)),
            own=tuple(map(change, self.own)),
            options=tuple(map(change, self.options)),
        )


def _reshaped(change: Callable[[Shape], Shape]) -> Callable[[Argument], Argument]:
    return lambda argument: replace(argument, shape=change(argument.shape))


def _replaced(arguments: Iterable[Argument], **others: Argument) -> tuple[Argument, ...]:
    """Replace arguments of these names, each by another one."""
    return tuple(others.get(argument.name, argument) for argument in arguments)


def _coded(draft: _Draft) -> _Draft:
    """Store keys and values, or latent vectors, as codes with scales (QUANT-8)."""
    others, own = {}, []
    for name in _CODED[draft.latent]:
        array = draft.named(name)
        others[name] = replace(
            quantization.codes(f"{name}_codes", f"codes of the {array.noun}s", "QUANT-8", array.shape),
            refusals=quantization.REFUSED if draft.latent else _REFUSED_HEADS,
        )
        own.append(quantization.scale(f"{name}_scales", f"{array.noun} codes", array.shape))
        own.append(quantization.zero_point(f"{name}_zero_points", f"{array.noun} codes", array.shape))
    own = sorted(own, key=lambda argument: argument.name.endswith("zero_points"))
    return replace(
        draft,
        arrays=_replaced(draft.arrays, **others),
        own=(*draft.own, *own, quantization.ENCODING),
    )


def _paged(draft: _Draft) -> _Draft:
    """Store keys and values in pages that a table lists (PAGE-1)."""
    known = forms.PAGED_ATTENTION.arguments
    held = {name: draft.named(name) for name in (*_HELD[draft.latent],) if name in _names(draft)}
    held |= {name: draft.named(f"{name}_codes") for name in _CODED[draft.latent] if name not in held}
    shapes = {array.shape: _page(array.shape) for array in held.values()}
    pages = {
        array.name: replace(
            array,
            name=f"{name}_pages",
            meaning=f"pages of {array.meaning}",
            rule="PAGE-1",
            shape=shapes[array.shape],
            refusals=MappingProxyType({**array.refusals, "shape": "ERR-16", "axes": "ERR-16"}),
            called=f"pages of {name.replace('_', ' ')}s",
        )
        for name, array in held.items()
    }

    def change(shape: Shape) -> Shape:
        return shapes.get(shape, tuple(_past_pages(axis) for axis in shape))

    draft = replace(draft, arrays=_replaced(draft.arrays, **pages))
    options = tuple(option for option in draft.options if option.name != "key_lengths")
    draft = replace(draft, options=_replaced(options, query_offset=known["query_offset"]))
    draft = draft.mapped(_reshaped(change)).mapped(_within_pages)
    tables = tuple(known[name] for name in ("block_table", "key_lengths", "left_padding"))
    return replace(draft, own=(*tables, *draft.own))


def _names(draft: _Draft) -> tuple[str, ...]:
    return tuple(array.name for array in draft.arrays)


def _page(shape: Shape) -> Shape:
    """Return the shape of pages: no batch axes, and positions of a page instead of those of a sequence."""
    return ("P", *("K" if axis == "S" else axis for axis in shape if axis != BATCH))


def _past_pages(axis: str) -> str:
    return {"S": "T*K", "S/Sb": "T*K/Sb"}.get(axis, axis)


def _within_pages(argument: Argument) -> Argument:
    """Let keys be counted to the number of positions of a table."""
    if argument.bounds is None or argument.bounds.most != "S":
        return argument
    return replace(argument, bounds=replace(argument.bounds, most="T*K"))


def _packed(draft: _Draft) -> _Draft:
    """Put the queries of all sequences into one row, and their keys unless they are in pages (PACK-1)."""
    known = forms.PACKED_ATTENTION.arguments
    paged = any(argument.name == "block_table" for argument in draft.own)
    starts = tuple(known[name] for name in ("query_starts", "key_starts")[: 1 if paged else 2])
    offset = known["query_offset"]
    if paged:
        offset = replace(forms.PAGED_ATTENTION.arguments["query_offset"], shape=offset.shape)
    draft = draft.mapped(_reshaped(_of_sequences))
    return replace(
        draft,
        own=(*starts, *draft.own),
        options=_replaced(
            draft.options, query_offset=replace(offset, refusals=known["query_offset"].refusals)
        ),
    )


def _of_sequences(shape: Shape) -> Shape:
    """Return the shape without batch axes. What belongs to a sequence has an axis of sequences."""
    if shape[:1] != (BATCH,):
        return shape
    return ("G", *shape[1:]) if shape[1:] in ((), ("T",), ("T*K",)) else shape[1:]


def _of_blocks(draft: _Draft) -> _Draft:
    """Let blocks of queries attend to blocks of keys (SPARSE-1)."""
    known = forms.BLOCK_SPARSE_ATTENTION.arguments
    names = ("query_block", "key_block", "block_mask", "block_counts", "block_indices")
    return replace(draft, own=(*draft.own, *(known[name] for name in names)))


def _of_lists(draft: _Draft) -> _Draft:
    """Let each query attend to a list of keys (SPARSE-6). Latent vectors have one list for all heads."""
    lists = forms.KEY_INDICES
    if draft.latent:
        lists = replace(lists, shape=tuple(axis for axis in lists.shape if axis != "Hkv"))
    return replace(draft, own=(*draft.own, lists))


#: How a form changes a declaration, in the order in which a call is stored.
_CHANGES: Mapping[str, Callable[[_Draft], _Draft]] = MappingProxyType(
    {
        "quantized": _coded,
        "block_sparse": _of_blocks,
        "listed": _of_lists,
        "paged": _paged,
        "packed": _packed,
    }
)


def stack(layers: tuple[str, ...]) -> Operation:
    """Declare the operation that combines several forms."""
    latent = "latent" in layers
    base = forms.LATENT_ATTENTION if latent else ATTENTION
    draft = _Draft(base.positional, (), _replaced(ATTENTION.named, scale=base.arguments["scale"]), latent)
    for name, change in _CHANGES.items():
        draft = change(draft) if name in layers else draft
    draft = draft.mapped(lambda argument: replace(argument, since=_SINCE))
    results = tuple(_result(output.shape, layers) for output in ATTENTION.results)
    return Operation(
        draft.arrays,
        (*draft.own, *draft.options),
        tuple(
            replace(output, shape=shape, rule="STACK-1", since=_SINCE)
            for output, shape in zip(ATTENTION.results, results, strict=True)
        ),
        reduces="attention",
        layers=layers,
    )


def _result(shape: Shape, layers: tuple[str, ...]) -> Shape:
    shape = tuple(map(_past_pages, shape)) if "paged" in layers else shape
    return _of_sequences(shape) if "packed" in layers else shape


def name_of(layers: Iterable[str]) -> str:
    """Return the name of the operation that combines forms: their words, then ``attention``."""
    return "_".join((*layers, "attention"))


#: The operations that combine two forms or more.
STACKS: Mapping[str, Operation] = MappingProxyType(
    {
        name_of(layers): stack(layers)
        for words in product(*_WORDS)
        if len(layers := tuple(filter(None, words))) > 1
    }
)
