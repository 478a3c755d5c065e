"""Forms and stacks of forms: operations derived from `attention` (STACK-1).

A form changes how a call is stored. `_packed`, `_paged`, `_coded`, `_of_blocks` and `_of_lists` each change
the declaration of any operation in that way. An operation has one form, and a stack has several.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType

from attnspec.operations import forms, quantization
from attnspec.operations.attention import ATTENTION
from attnspec.operations.gradients import dated, vjp, with_gradient_of_scale
from attnspec.operations.letters import BATCH
from attnspec.operations.operation import Argument, Operation, Shape, changed, name_of

#: The versions that added the forms, the stacks, and the other options of attention to each form.
_FORMS, _STACKS, _OPTIONS = "2026.11.22", "2026.11.24", "2026.11.25"
#: The forms in the order of their words in a name, and those of which a call has one at most.
_WORDS = (("packed", ""), ("paged", ""), ("quantized", ""), ("block_sparse", "listed", ""), ("latent", ""))
#: The arrays that hold keys and values, and those of them that may be codes.
_HELD = {False: ("key", "value"), True: ("latent", "key_rotary")}
_CODED = {False: ("key", "value"), True: ("latent",)}
_REFUSED_HEADS = MappingProxyType({**quantization.REFUSED, "Hkv": "HEAD-2"})
#: The options that each form had at first.
_SHORT = ("scale", "softcap", "is_causal", "query_offset", "window", "sinks", "return_lse")
_OF_SPARSE = (*_SHORT, "bias", "mask", "key_lengths", "query_positions", "key_positions")
_FIRST: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "packed": _SHORT,
        "paged": _SHORT,
        "quantized": tuple(option.name for option in ATTENTION.named),
        "block_sparse": _OF_SPARSE,
        "listed": _OF_SPARSE,
        "latent": (*_SHORT, "mask", "key_lengths"),
        "sharded": (),
    }
)
#: The rules that define the outputs of a form, if they are not those of attention.
_RULES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "packed": {"output": "PACK-1", "lse": "PACK-1"},
        "paged": {"output": "PAGE-1", "lse": "PAGE-1"},
        "latent": {"output": "LATENT-1", "lse": "LATENT-3"},
        "sharded": {"output": "SHARD-1", "lse": "SHARD-7", "weights": "SHARD-7", "max": "SHARD-7"},
    }
)


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
    return lambda argument: changed(argument, shape=change(argument.shape))


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
    draft = replace(draft, options=_replaced(options, query_offset=forms.OFFSET_AT_THE_END))
    draft = draft.mapped(_reshaped(change)).mapped(_within_pages)
    return replace(draft, own=(forms.BLOCK_TABLE, forms.HELD_LENGTHS, forms.LEFT_PADDING, *draft.own))


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
    offset = forms.OFFSET_IN_SEQUENCE
    starts: tuple[Argument, ...] = (forms.QUERY_STARTS, forms.KEY_STARTS)
    if forms.BLOCK_TABLE.name in {argument.name for argument in draft.own}:
        refusals = offset.refusals
        offset = replace(forms.OFFSET_AT_THE_END, shape=offset.shape, refusals=refusals)
        starts = starts[:1]
    draft = draft.mapped(_reshaped(_of_sequences))
    return replace(
        draft,
        arrays=tuple(map(_without_batch, draft.arrays)),
        own=(*starts, *draft.own),
        options=_replaced(draft.options, query_offset=offset),
    )


def _without_batch(array: Argument) -> Argument:
    """Refuse further axes of a row by the rule of all forms."""
    return replace(array, refusals=MappingProxyType({**array.refusals, "axes": "ERR-16"}))


def _of_sequences(shape: Shape) -> Shape:
    """Return the shape without batch axes. What belongs to a sequence has an axis of sequences."""
    if shape[:1] != (BATCH,):
        return shape
    return ("G", *shape[1:]) if shape[1:] in ((), ("T",), ("T*K",)) else shape[1:]


def _of_blocks(draft: _Draft) -> _Draft:
    """Let blocks of queries attend to blocks of keys (SPARSE-1)."""
    blocks = (forms.QUERY_BLOCK, forms.KEY_BLOCK, forms.BLOCK_MASK, forms.BLOCK_COUNTS, forms.BLOCK_INDICES)
    return replace(draft, own=(*draft.own, *blocks))


def _of_lists(draft: _Draft) -> _Draft:
    """Let each query attend to a list of keys (SPARSE-6). Latent vectors have one list for all heads."""
    lists = forms.KEY_INDICES
    if draft.latent:
        lists = replace(lists, shape=tuple(axis for axis in lists.shape if axis != "Hkv"))
    return replace(draft, own=(*draft.own, lists))


def _sharded(draft: _Draft) -> _Draft:
    """Split queries, keys and heads over ranks (SHARD-1). The arrays stay those of the whole."""
    return replace(
        draft,
        arrays=tuple(map(_without_batch, draft.arrays)),
        own=(*draft.own, forms.QUERY_SHARDS, forms.KEY_SHARDS, forms.HEAD_SHARDS),
    )


#: How a form changes a declaration, in the order in which a call is stored.
_CHANGES: Mapping[str, Callable[[_Draft], _Draft]] = MappingProxyType(
    {
        "quantized": _coded,
        "block_sparse": _of_blocks,
        "listed": _of_lists,
        "paged": _paged,
        "packed": _packed,
        "sharded": _sharded,
    }
)


def declare(layers: tuple[str, ...]) -> Operation:
    """Declare the operation of one form, or of a stack of several."""
    latent, single = "latent" in layers, len(layers) == 1
    options = _replaced(ATTENTION.named, scale=forms.LATENT_SCALE) if latent else ATTENTION.named
    draft = _Draft(forms.LATENT_ARRAYS if latent else ATTENTION.positional, (), options, latent)
    for name, change in _CHANGES.items():
        draft = change(draft) if name in layers else draft
    if layers == ("paged",):
        draft = replace(draft, own=(*draft.own, forms.NEW_KEY, forms.NEW_VALUE))
    options = (
        tuple(_dated(option, _FIRST[layers[0]]) for option in draft.options) if single else draft.options
    )
    named = (*draft.own, *options)
    since = {argument.name: argument.since for argument in named}
    rules = _RULES.get(layers[0], {}) if single else {}
    form = Operation(
        draft.arrays,
        named,
        tuple(
            changed(
                output,
                shape=_result(output.shape, layers),
                rule=rules.get(output.name, output.rule),
                since=since.get(output.option, _FORMS),
            )
            for output in ATTENTION.results
        ),
        headless=single and layers[0] in ("quantized", "block_sparse", "listed"),
        reduces="attention",
        layers=layers,
    )
    return form if single else _of_stack(form)


def _dated(option: Argument, first: tuple[str, ...]) -> Argument:
    """Date an option of attention that a form did not have at first."""
    return option if option.name in first else changed(option, since=max(option.since, _OPTIONS))


def _of_stack(form: Operation) -> Operation:
    """Date everything, and let the rule of stacks define the results."""
    form = dated(form, _STACKS)
    return replace(form, results=tuple(changed(output, rule="STACK-1") for output in form.results))


def _result(shape: Shape, layers: tuple[str, ...]) -> Shape:
    shape = tuple(map(_past_pages, shape)) if "paged" in layers else shape
    return _of_sequences(shape) if "packed" in layers else shape


#: The operations of one form, and those that combine two or more.
FORMS, STACKS = (
    MappingProxyType(
        {
            name_of(layers): declare(layers)
            for words in product(*_WORDS)
            if bool(layers := tuple(filter(None, words))) and (len(layers) > 1) == several
        }
    )
    for several in (False, True)
)


#: A form that combines with no other: codes, pages and sequences are reduced on each rank.
SHARDED_ATTENTION = dated(declare(("sharded",)), _OPTIONS)


def _gradients(name: str, rule: str = "GRAD-1", form: Operation | None = None) -> Operation:
    """Declare the gradients of a form."""
    rules = {} if name == "packed" else {"bias": "GRAD-4", "sinks": "GRAD-7"}
    form = with_gradient_of_scale(vjp(form or FORMS[name_of([name])], rule, rules))
    return replace(form, reduces="attention_vjp", layers=())


PACKED_ATTENTION_VJP = _gradients("packed", "PACK-7")
BLOCK_SPARSE_ATTENTION_VJP, LISTED_ATTENTION_VJP = map(_gradients, ("block_sparse", "listed"))
LATENT_ATTENTION_VJP = dated(_gradients("latent", "LATENT-5"), _OPTIONS)
SHARDED_ATTENTION_VJP = dated(_gradients("sharded", "SHARD-10", SHARDED_ATTENTION), _OPTIONS)
