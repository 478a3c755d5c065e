"""Wrong when a call is captured once and replayed with other numbers in its arrays."""

from collections.abc import Callable
from typing import Any

from attnspec.conformance.gallery.entry import family, rows
from attnspec.reference.call import Arguments, Call, Step


def _kept(name: str) -> tuple[str, str, Step]:
    """Make an entry that keeps one argument of the call that was captured."""

    def replayed(_call: Call, kept: Arguments, now: Arguments) -> Arguments:
        return now | ({name: kept[name]} if now.get(name) is not None else {})

    return (
        f"captured_{name}",
        f"Read `{name}` when a call is captured, and not again when it is replayed.",
        replayed,
    )


ENTRIES = family(
    _kept,
    "replay",
    "ERR-20",
    "T",
    "key",
    "value",
    "mask",
    "bias",
    "key_lengths",
    "query_lengths",
    "query_offset",
    "key_segment_ids",
    "sinks",
    "dropout_mask",
    "d_output",
    "query_starts",
    "block_table",
    "key_codes",
    "block_mask",
    "key_indices",
    "latent",
)


def _by_shape(name: str) -> Callable[..., Arguments]:
    """Return a step that finds a captured call by the shape of its queries, not by an option."""

    def replayed(call: Call, kept: Arguments, now: Arguments) -> Arguments:
        key = (name, tuple(now["query"].shape))
        return now | {name: call.steps.memory.setdefault(key, kept.get(name))}

    return replayed


OPTIONS: Any = rows(
    ("captured_calls_found_by_their_shape", "replay", "ERR-20", "T", _by_shape("scale"),
     "Replay a call that was captured with another scale, as its arrays have the same shapes."),
    ("captured_calls_share_a_softcap", "replay", "ERR-20", "T", _by_shape("softcap"),
     "Replay a call that was captured with another softcap, as its arrays have the same shapes."),
    ("captured_calls_share_causality", "replay", "ERR-20", "T", _by_shape("is_causal"),
     "Replay a call that was captured with or without causality, as its arrays have the same shapes."),
    ("captured_calls_share_a_window", "replay", "ERR-20", "T", _by_shape("window"),
     "Replay a call that was captured with another window, as its arrays have the same shapes."),
)  # fmt: skip
