"""Makes external text, such as messages and names of implementations, safe to show."""

#: Longer texts than this are cut.
_MOST = 2000


def plain(text: str) -> str:
    r"""Replace control characters, lone surrogates and direction marks."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "\ufffd" for letter in text)


def cut(text: str) -> str:
    """Truncate a long text, with a note."""
    return text if len(text) <= _MOST else f"{text[:_MOST]}... and {len(text) - _MOST} characters more"


def one_line(text: str) -> str:
    r"""Convert a text to one line, and truncate it if it is long."""
    return cut(plain(" ".join(text[: 2 * _MOST].split())))
