"""Wrong at a size, edge, count or split, or on one of several paths. Each entry replaces a step of a base."""

from attnspec.conformance.gallery.edges import (
    addresses,
    counts,
    decoding,
    inside,
    lengths,
    memory,
    visited,
)

#: The modules, in the order in which their entries are listed.
MODULES = (visited, inside, decoding, lengths, counts, addresses, memory)
