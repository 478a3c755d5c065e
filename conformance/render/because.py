"""The text of a cause: what its failures have in common."""

from collections.abc import Iterator, Sequence
from math import isfinite

from attnspec.conformance import traits
from attnspec.conformance.attribution.aside import PRECISE, TRACES, error_of
from attnspec.conformance.attribution.causes import Cause
from attnspec.conformance.attribution.common import Common
from attnspec.conformance.attribution.messages import other_messages
from attnspec.conformance.attribution.same_variant import same_variant
from attnspec.conformance.verdict import Verdict
from attnspec.dtypes import DTYPES


def because(cause: Cause) -> Iterator[str]:
    """Describe what the calls of a cause have in common, and its other properties.

    Examples
    --------
    >>> from attnspec.conformance.attribution.causes import Cause
    >>> from attnspec.conformance.attribution.common import Common
    >>> from attnspec.conformance.render.because import because
    >>> list(because(Cause("MASK-1", (), Common(("mask",), 41, 43, 0, 820))))
    ['fails: 41 of 43 calls with `mask`, 0 of 820 others']
    """
    if cause.kind in _KINDS:
        yield _KINDS[cause.kind]
    if cause.kind == PRECISE:
        yield f"all failures are due to the precision: {_worst(cause)}"
    if cause.kind == TRACES:
        largest = max(map(error_of, cause.failures), default=0.0)
        yield f"all errors are at most {largest:.2g}: weights that should be 0, or nearly 0, are larger"
    if cause.precision:
        yield f"all failures are within the budget of {cause.precision}: some step may be computed in it"
    for common in (cause.common, *cause.further):
        yield from _counted(common)
    yield from _of_variant(cause)
    yield from _ignored(cause)
    for text in other_messages(cause.failures) if cause.kind != "refused" else ():
        yield f"also: {text}"


def _of_variant(cause: Cause) -> Iterator[str]:
    same = same_variant(cause)
    if same is not None and same.equal < same.compared:
        calls = f"{same.equal} of {same.compared} failing calls under {cause.rule}"
        yield f"the variant `{same.name}`: {calls} equal it; the others may break another rule too"


def _ignored(cause: Cause) -> Iterator[str]:
    """Name the arguments without which most of the calls with them, but not all, have the same result."""
    for name in dict.fromkeys(one.ignored for one in cause.failures if one.ignored):
        calls = with_argument(name, cause.failures)
        same = sum(one.ignored == name for one in calls)
        if 2 * same > len(calls) and (same < len(calls) or cause.failures[0].ignored != name):
            yield f"the result is the same without `{name}` in {same} of {len(calls)} failing calls with it"


def with_argument(name: str, failures: Sequence[Verdict]) -> list[Verdict]:
    """Return the failing calls that were compared with the same call without an argument.

    Golden vectors and relations are not.

    Examples
    --------
    >>> from attnspec.conformance.render.because import with_argument
    >>> from attnspec.conformance.verdict import Verdict
    >>> one, golden = (Verdict("b", "c", g, ("MASK-1",), "fail", traits=("mask",)) for g in ("g", ""))
    >>> with_argument("mask", [one, golden]) == [one]
    True
    """
    return [one for one in failures if name in one.traits and one.group and traits.RELATED not in one.traits]


def _worst(cause: Cause) -> str:
    """Describe the largest error in each dtype. Outside the range of a dtype there is no budget."""
    shares: dict[str, float] = {}
    for one in cause.failures:
        share = one.difference.share if one.difference and one.difference.kind == "value" else 0.0
        if isfinite(share):
            shares[one.dtype] = max(share, shares.get(one.dtype, 0.0))
    return ", ".join(f"up to {share:.3g} budgets in {dtype}" for dtype, share in sorted(shares.items()))


def _counted(common: Common) -> Iterator[str]:
    if common.traits and common.failing + common.others > 1:
        calls = " ".join(map(in_words, common.traits))
        others = f", {common.others} of {common.of_others} others" if common.of_others else ""
        yield f"fails: {common.failing} of {common.judged} calls {calls}{others}"


def in_words(trait: str) -> str:
    """Describe what calls have in common, for use after the word "calls".

    Examples
    --------
    >>> from attnspec.conformance.render.because import in_words
    >>> in_words("mask"), in_words("empty axes")
    ('with `mask`', 'with no queries, keys or batch entries')
    >>> in_words("key_lengths of 0")
    'with `key_lengths` of 0'
    >>> in_words("more than 64 keys")
    'with more than 64 keys'
    """
    option = traits.option_of(trait)
    numbers = {
        traits.negative(option): f"with a negative `{option}`",
        traits.zero(option): f"with `{option}` of 0",
        traits.by_entry(option): f"with `{option}` that differ between batch entries",
    }
    if trait.startswith(traits.MORE_THAN) or traits.NOT_A_MULTIPLE in trait:
        return f"with {trait}"
    return _COMMON.get(trait) or numbers.get(trait, f"with `{trait}`")


#: The kinds of causes that are not about wrong values.
_KINDS = {
    "repeated": "not repeatable: failing calls were repeated, and some of them had another result",
    "earlier": "depends on earlier calls: a call that failed passes as the first call of a process",
}
#: What calls have in common, in words. An option has its own name.
_COMMON = {
    traits.NO_SCALE: "without a scale",
    traits.SHARED: "with shared key heads",
    traits.NOTHING: "with no queries, keys or batch entries",
    traits.EMPTY: "with a row that has nothing to attend to",
    traits.SPECIAL: "with NaN or infinity",
    traits.LARGE: "with large scores",
    traits.MORE_QUERIES: "with more queries than keys",
    traits.OTHER_DEPTH: "with values of another depth than the queries",
    traits.TILED: "with more than 16 keys or queries",
    traits.TILED_32: "with more than 32 keys or queries",
    traits.TILED_64: "with more than 64 keys or queries",
    traits.ONE_QUERY: "with one query",
    traits.OPEN_LEFT: "with a window open on the left",
    traits.OPEN_RIGHT: "with a window open on the right",
    traits.VIEWED: "with arrays that do not lie in rows",
    **{dtype: f"in {dtype}" for dtype in DTYPES},
}
