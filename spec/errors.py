"""The one error of the loaders: something in the standard, or asked of it, does not fit."""


class SpecError(ValueError):
    """A chapter, a rule id or a vector file that cannot be used.

    The message names what was asked for, what was got and what was expected.
    """
