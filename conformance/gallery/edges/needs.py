"""Which entries of `edges` the ordinary run of the suite does not fail, and what shows them."""

from collections.abc import Mapping
from types import MappingProxyType

#: By the names of entries: a word of `NEEDS` of `gallery.entry`.
NEEDED: Mapping[str, str] = MappingProxyType({})
