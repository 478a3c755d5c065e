"""Backends of users: a function, a `Backend`, or an ``attnspec.toml``."""
