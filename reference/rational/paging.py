"""Attention over pages of the second oracle: a padded batch, with a mask for the positions that are keys."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.rational.attention import attention
from attnspec.reference.rational.masking import of_entry

Arguments = Mapping[str, Any]
Arrays = dict[str, NDArray[np.float64]]
_OPTIONS = ("scale", "softcap", "is_causal", "window", "sinks")


def paged_attention(arguments: Arguments, dialect: Mapping[str, str]) -> Arrays:
    """Compute output and lse."""
    query = np.asarray(arguments["query"])
    batch, queries = query.shape[:-3], query.shape[-2]
    _, heads, size, _ = np.shape(arguments["key_pages"])
    keys = np.shape(arguments["block_table"])[-1] * size
    added = 0 if arguments.get("new_key") is None else np.shape(arguments["new_key"])[-2]
    mask, offsets = np.zeros((*batch, 1, 1, keys), bool), np.zeros(batch, np.int64)
    plain: dict[str, Any] = {"query": query}
    for name in ("key", "value"):
        depth = np.shape(arguments[f"{name}_pages"])[-1]
        plain[name] = np.zeros((*batch, heads, keys, depth))
    for entry in np.ndindex(batch):
        length = of_entry(arguments["key_lengths"], batch, entry) or 0
        padding = of_entry(arguments.get("left_padding"), batch, entry) or 0
        given = of_entry(arguments.get("query_offset"), batch, entry)
        offsets[entry] = length + added - queries if given is None else given
        mask[entry][..., padding : length + added] = True
        for name in ("key", "value"):
            rows, pages = plain[name][entry], np.asarray(arguments[f"{name}_pages"]).astype(np.float64)
            for t, page in enumerate(np.asarray(arguments["block_table"])[entry].tolist()):
                there = max(min(length - t * size, size), 0)
                if there:
                    rows[:, t * size : t * size + there] = pages[page, :, :there]
            if added:
                rows[:, length : length + added] = np.asarray(arguments[f"new_{name}"]).astype(np.float64)[
                    entry
                ]
            rows[:, :padding] = 0
    plain |= {name: arguments[name] for name in _OPTIONS if arguments.get(name) is not None}
    offset: Any = offsets if batch else int(offsets)
    shown = {rule: variant for rule, variant in dialect.items() if rule != "MASK-3"}
    found = attention({**plain, "mask": mask, "query_offset": offset}, shown)
    return {name: found[name] for name in ("output", "lse")}
