"""Correct entries: the bases of `edges`, with no step replaced."""

from attnspec.conformance.gallery.bases.online import TILED
from attnspec.conformance.gallery.bases.splitting import DECODING, FEW
from attnspec.conformance.gallery.bases.windowed import WINDOWED, WINDOWED_SMALL
from attnspec.conformance.gallery.entry import Entry

LOOPS = tuple(
    Entry(f"tiles_of_{each.name}", f"Go through keys {each.words}.", {"attend": each.attend})
    for each in TILED
)
WINDOWS = tuple(
    Entry(
        f"tiles_{each.name}",
        f"Visit only tiles within window, causal mask and lengths, {each.words}.",
        {"attend": each.attend},
    )
    for each in (WINDOWED, WINDOWED_SMALL)
)
SPLITS = tuple(
    Entry(f"splits_{each.name}", f"Merge finished results {each.words}.", {"attend": each.attend})
    for each in (*DECODING, FEW)
)
