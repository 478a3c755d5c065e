"""Selects the smallest calls of the quick part, which `attnspec check --smoke` judges in seconds.

They show each rule, each set of arguments and each argument, and each option in several tiles.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from itertools import compress, product

from attnspec import OPERATIONS
from attnspec.conformance.run.plan import CallOutline, Outline, index
from attnspec.conformance.traits import (
    AXES_OF_PAIRS,
    CLOSED_LEFT,
    EMPTY,
    GRADIENT,
    HUGE,
    LARGE,
    LINEAR,
    MORE_QUERIES,
    NOTHING,
    ONE_QUERY,
    OPEN_LEFT,
    OTHER_STRIDES,
    RELATED,
    RISING_64,
    SPECIAL,
    UNEQUAL,
    WHOLE_PAGES,
    repeated,
    repeated_inside,
    zero,
)
from attnspec.dtypes import SHORT

#: A call with fewer numbers has one query or key, and shows little; one with more is not small.
_LEAST, _MOST = 40, 1000
#: The largest number of arguments of a small call about options that act together.
_MOST_TOGETHER = 9
#: A kernel of a form takes few calls. There are at least so many of its plain calls, and of one query in it.
_OF_A_FORM = 20
#: A call with more numbers than this is not taken for an argument or a form either.
_MOST_OF_AN_ARGUMENT = 8192
#: A call of half precision may have more: the sum over a thousand keys shows where it is held.
_MOST_IN_HALF = 9000
#: A small tile of keys, and how many calls with an option show each size in tiles: a window may be too wide.
_TILE, _SHOWN = 32, (1, 1, 2, 2)
WIDE = ("float32", "float64")


@cache
def smallest(dtype: str = "") -> frozenset[str]:
    """Name the smallest calls of the quick part: one for each rule, each set of arguments and each argument.

    They are of float32 and float64, or of the given dtype. Some show the sums of half precision.
    """
    dtypes = (dtype,) if dtype else WIDE
    done: set[object] = set()
    names = set()
    single = [
        outline
        for outline in index()
        if outline.quick and not outline.related and outline.calls and outline.dtype in dtypes
    ]
    for outline in sorted((outline for outline in single if _is_small(outline)), key=_size):
        shows = {(rule, _evidence(outline, call)) for rule in outline.rules for call in outline.calls}
        if shows - done:
            names.add(outline.name)
            done |= shows
    plain = {*_plain_calls(single), *_calls_of_sizes(dtypes), *_calls_in_half()}
    plain |= {*_calls_over_tiles(single), *_calls_of_strides(single), *_gradients(single), *_steepest(single)}
    plain |= {*_calls_of_shared_pairs(single), *_calls_of_slopes()}
    return frozenset(names | calls_of_arguments(single) | plain)


def _evidence(outline: Outline, call: CallOutline) -> object:
    """Return what a small call shows of a rule: its operation and arguments, or nothing of its own.

    A gradient takes long to compile, and those of its arguments are chosen by themselves. Stacks are many.
    """
    little = OPERATIONS[call.operation].stacked and (outline.refusal or "SHAPE-7" in outline.rules)
    return () if little or call.operation.endswith("_vjp") else call


def _is_small(outline: Outline) -> bool:
    """Whether a call has few numbers, and not many options that act together."""
    return outline.numbers <= _MOST and not _has_many(outline)


def _has_many(outline: Outline) -> bool:
    return "ERR-3" in outline.rules and len(outline.calls[0].arguments) > _MOST_TOGETHER


def _plain_calls(outlines: Iterable[Outline]) -> Iterator[str]:
    """Name the calls of each form, and those of one query in it, the small and the plainest first."""
    of_forms: Counter[tuple[str, bool]] = Counter()
    plain = (own for own in outlines if own.numbers <= _MOST_OF_AN_ARGUMENT and _is_plain(own))
    for outline in sorted(plain, key=_plainness):
        form = outline.calls[0].operation, ONE_QUERY in outline.traits
        if of_forms[form] < _OF_A_FORM:
            of_forms[form] += 1
            yield outline.name


def _plainness(outline: Outline) -> tuple[object, ...]:
    return outline.numbers > _MOST, len(outline.calls[0].arguments), _size(outline)


def _is_plain(outline: Outline) -> bool:
    """Whether a call is of a form, with what stores its arrays, a scale, lengths and causality alone."""
    operation, arguments = outline.calls[0]
    form = OPERATIONS[operation]
    stored = {own.name for own in form.arguments.values() if own.required or {"data", "form"} & {*own.role}}
    plain = stored | {"scale", "key_lengths", "is_causal"}
    shows = not (outline.refusal or "SHAPE-7" in outline.rules)
    return bool(form.layers) and shows and {*arguments} <= plain


def calls_of_arguments(outlines: Iterable[Outline], quick: Collection[str] = ()) -> set[str]:
    """Name the plainest call with each argument of each operation, and each bias for functions of slopes.

    An argument beside few others shows what it does, and more kernels take the call. Of calls with as
    many, those of the given names come first.
    """
    plainest: dict[tuple[str, str], tuple[tuple[object, ...], str]] = {}
    for outline in outlines:
        if outline.refusal or outline.related or outline.numbers > _MOST_OF_AN_ARGUMENT:
            continue
        traits, other = {*outline.traits}, outline.dtype not in WIDE
        for operation, arguments in outline.calls:
            for own in (*arguments, *([outline.group] if LINEAR in traits else [])):
                little = not {SPECIAL, NOTHING, EMPTY, CLOSED_LEFT, zero(own)}.isdisjoint(traits)
                little = little or outline.numbers < _LEAST or _has_many(outline)
                little = little or not _matters(operation, own, arguments)
                shape = len(traits), outline.numbers, outline.name
                beside = len(arguments), outline.name not in quick
                narrow = outline.dtype != "float32"  # which most kernels take
                order = (other, little, outline.numbers > _MOST, *beside, narrow, *shape)
                if (operation, own) not in plainest or order < plainest[operation, own][0]:
                    plainest[operation, own] = order, outline.name
    return {name for _, name in plainest.values()}


def _matters(operation: str, name: str, arguments: Collection[str]) -> bool:
    """Whether an argument has an effect beside others: an offset has none without causality and a window."""
    argument = OPERATIONS[operation].arguments.get(name)
    return not (argument and argument.matters_with) or not {*argument.matters_with}.isdisjoint(arguments)


def _calls_of_sizes(dtypes: Collection[str]) -> Iterator[str]:
    """Name the plainest calls of each size that changes the path of a kernel.

    Where one entry is far shorter than another, a split of its keys is empty. With more queries than keys,
    causality shows that takes the place of the mask of a last block.
    """
    plain = [
        case
        for case in index()
        if case.quick and case.dtype in dtypes and not {RELATED, SPECIAL, LARGE} & {*case.traits}
    ]
    once = ({RISING_64}, {UNEQUAL}, {WHOLE_PAGES}, {WHOLE_PAGES, ONE_QUERY})
    # Of some numbers, large scores hide it.
    for wanted, count in (*((traits, 1) for traits in once), ({MORE_QUERIES, "is_causal"}, 3)):
        having = (case for case in plain if wanted <= {*case.traits})
        plainest = sorted(having, key=lambda case: (len(case.calls[0].arguments), case.numbers))
        yield from (case.name for case in plainest[:count])
    yield from (case.name for case in plain if case.group.startswith("entries that end before others"))


def _calls_over_tiles(outlines: Iterable[Outline]) -> Iterator[str]:
    """Name the plainest calls with each option in several tiles of keys, of both, and with many more keys."""
    over: dict[tuple[str, str, int], list[tuple[int, int, str]]] = {}
    for outline in outlines:
        little = {SPECIAL, NOTHING, LARGE, GRADIENT} & {*outline.traits} or _has_many(outline)
        if outline.refusal or little or not outline.sizes or outline.numbers > _MOST_OF_AN_ARGUMENT:
            continue
        operation, arguments = outline.calls[0]
        queries, keys = outline.sizes[3:5]
        both = min(queries, keys)
        shows = (keys > _TILE, both > 2 * _TILE, both > 4 * _TILE, keys - _TILE > queries > 1)
        # The right side alone decides where these end.
        sides = {OPEN_LEFT, CLOSED_LEFT} & {*outline.traits} if both > 4 * _TILE else ()
        for own, number in product((*arguments, *sides), compress(range(len(shows)), shows)):
            if _matters(operation, own, arguments):
                order = len(arguments), outline.numbers, outline.name
                over.setdefault((operation, own, number), []).append(order)
    for (*_, number), calls in over.items():
        yield from (name for *_, name in sorted(calls)[: _SHOWN[number]])


def _steepest(outlines: Iterable[Outline]) -> list[str]:
    """Name the plainest calls, of few queries and of many, in which the largest score rises by much later."""
    steep = [own for own in outlines if {LARGE, RISING_64} <= {*own.traits} and HUGE not in own.traits]
    steep = [own for own in steep if own.sizes]
    steep.sort(key=lambda own: (len(own.calls[0].arguments), own.numbers, own.name))
    parts = ([own.name for own in steep if (own.sizes[3] > _TILE) is many] for many in (False, True))
    return [name for names in parts for name in names[:1]]


def _calls_of_shared_pairs(outlines: Iterable[Outline]) -> Iterator[str]:
    """Name the smallest call with one mask, and one bias, for several heads or for several batch entries.

    Its other axes have numbers of their own. The gradient of such a bias is a sum over that axis alone. A
    second call has several tiles.
    """
    alone = [own for own in outlines if own.numbers > _LEAST and not own.refusal and own.sizes]
    alone = [own for own in alone if SPECIAL not in own.traits and min(own.sizes[:3]) > 1]
    pairs = product(("attention", "attention_vjp"), ("mask", "bias"))
    for (operation, option), axis, tile in product(pairs, ("head", "batch entry"), (0, _TILE)):
        kinds = {repeated_inside(option): axis == "head"}  # with an axis of batch entries before it
        kinds |= {repeated(option, other): other == axis for other in AXES_OF_PAIRS}
        wanted = {kind for kind, has in kinds.items() if has}
        having = [own for own in alone if {*own.traits} & kinds.keys() == wanted]
        having = [own for own in having if own.calls[0].operation == operation and min(own.sizes[3:5]) > tile]
        having.sort(key=lambda own: (own.dtype, len(own.calls[0].arguments), own.numbers, own.name))
        yield from (own.name for own in having[:1])


def _calls_of_slopes() -> Iterator[str]:
    """Name the calls in half precision for functions of slopes, which show the dtype of the distances."""
    yield from (own.name for own in index() if own.quick and own.related and LINEAR in own.traits)


def _gradients(outlines: Iterable[Outline]) -> Iterator[str]:
    """Name the plainest gradients of groups of heads, tiles, and rows without keys by each option.

    Tiles of causal gradients with more keys than queries start in the middle of the keys, as windows do.
    """
    plainest: dict[tuple[str, str], tuple[int, int, str]] = {}
    for outline in outlines:
        little = {SPECIAL, NOTHING, LARGE} & {*outline.traits} or _has_many(outline)
        if outline.refusal or little or GRADIENT not in outline.traits or not outline.sizes:
            continue
        operation, arguments = outline.calls[0]
        _, heads, key_heads, queries, keys = outline.sizes[:5]
        shows = {"groups": 1 < key_heads < heads, "tiles": min(queries, keys) > _TILE}
        later = keys - queries >= _TILE // 2 < queries
        causal = "is_causal" in arguments and EMPTY not in outline.traits
        shows["causal tiles"] = causal and later
        masks = {*arguments} & {*OPERATIONS[operation].names("masks")} if EMPTY in outline.traits else set()
        if "window" in arguments and keys > queries > 1:
            shows |= {f"window beside {causal=}": True, "window in tiles": keys > _TILE}
        if outline.numbers <= _MOST_OF_AN_ARGUMENT:
            order = len(arguments), outline.numbers, outline.name
            for name in (*compress(shows, shows.values()), *masks):
                plainest[operation, name] = min(order, plainest.get((operation, name), order))
    yield from (name for *_, name in plainest.values())


def _calls_of_strides(outlines: Iterable[Outline]) -> Iterator[str]:
    """Name the smallest call of each group whose key and value have different strides."""
    taken: set[str] = set()
    for outline in sorted(outlines, key=_size):
        if OTHER_STRIDES in outline.traits and outline.group not in taken and _is_small(outline):
            taken.add(outline.group)
            yield outline.name


def _calls_in_half() -> Iterator[str]:
    """Name the calls that show a computation in half precision, and the plain calls of forms in it."""
    for outline in index():
        single = outline.quick and outline.calls and not (outline.related or outline.refusal)
        if single and outline.dtype in SHORT and outline.numbers <= _MOST_IN_HALF:
            gradient = outline.calls[0].operation.endswith("_vjp")  # it takes long to compile
            if ("NUM-5" in outline.rules and not gradient) or _is_plain(outline):
                yield outline.name


def _size(outline: Outline) -> tuple[object, ...]:
    """Return what orders cases by size. Those in float32 come before float64."""
    return outline.dtype, outline.numbers < _LEAST, outline.numbers
