"""The error for a call that the standard refuses."""


class ArgumentError(ValueError):
    """An argument that cannot be used.

    The message names the argument, what was expected, what was got and the rule.
    """
