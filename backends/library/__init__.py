"""Array libraries."""
