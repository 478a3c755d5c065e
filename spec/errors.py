"""The error of the loaders."""


class SpecError(ValueError):
    """A chapter, a rule id or a vector file that cannot be used.

    The message says what was expected and what was given.
    """
