"""Wrong at a size, an edge, a count or a split, or on one of several paths: bases with a step replaced."""

from attnspec.conformance.gallery.edges import (
    addresses,
    batches,
    counts,
    decoding,
    depths,
    inside,
    long_path,
    memory,
    merging,
    precision,
    remainders,
    running,
    strides,
    visited,
)

#: In the order in which their entries are listed.
MODULES = (
    visited,
    inside,
    running,
    remainders,
    decoding,
    merging,
    long_path,
    counts,
    depths,
    addresses,
    strides,
    precision,
    batches,
    memory,
)
