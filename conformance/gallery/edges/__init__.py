"""Wrong at a size, an edge, a count or a split alone, or on one of several paths: bases with one step replaced."""
