"""User backends: a function, a `Backend`, or an ``attnspec.toml``."""
