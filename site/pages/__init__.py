"""Writes the pages of the site, from what the package and the repository hold."""
