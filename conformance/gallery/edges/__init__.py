"""Wrong at a size, edge, count or split, or on one of several paths. Each entry replaces a step of a base."""

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

#: The modules, in the order in which their entries are listed.
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
