"""Makes external text, such as messages and names of implementations, safe to show."""

#: Longer texts than this are cut.
_MOST = 2000


def plain(text: str) -> str:
    r"""Replace control characters, lone surrogates and direction marks.

    Examples
    --------
    >>> from attnspec.conformance.outside import plain
    >>> plain("red: \x1b[31m")
    'red: �[31m'
    """
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "\ufffd" for letter in text)


def cut(text: str) -> str:
    """Truncate a long text, with a note.

    Examples
    --------
    >>> from attnspec.conformance.outside import cut
    >>> cut("x" * 2500)[-28:]
    'x... and 500 characters more'
    """
    return text if len(text) <= _MOST else f"{text[:_MOST]}... and {len(text) - _MOST} characters more"


def one_line(text: str) -> str:
    r"""Convert a text to one line, and truncate it if it is long.

    Examples
    --------
    >>> from attnspec.conformance.outside import one_line
    >>> one_line("a\n  b")
    'a b'
    """
    return cut(plain(" ".join(text[: 2 * _MOST].split())))
