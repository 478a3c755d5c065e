"""The formulas of two chapters, numerics and gradients, read from the pages and evaluated by element."""

import math
import re
from functools import cache
from pathlib import Path

import mpmath
import numpy as np

import attnspec
from attnspec.dtypes import FORMATS, SHORT

_FOLDER = Path(attnspec.__file__).parent
PAGE = "".join((_FOLDER / f"{name}.md").read_text(encoding="utf-8") for name in ("numerics", "gradients"))


def wide(name):
    """A function in float64, and in a longer range where its argument or its value needs that."""

    def run(x):
        if isinstance(x, mpmath.mpf) or abs(x) >= 700:
            return getattr(mpmath, name)(x)
        return getattr(np, name)(x)

    return run


FUNCTIONS = {
    "exp": wide("exp"),
    "expm1": wide("expm1"),
    "log1p": wide("log1p"),
    "log": lambda x: np.log(max(x, 1e-300)),
    "cosh": wide("cosh"),
    "tanh": np.tanh,
    "sqrt": math.sqrt,
    "ceil": math.ceil,
    "pi": math.pi,
}
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FORMULA = re.compile(r"(\w+)(?:\[(.*?)\]|\((.*?)\))? = (.*)", re.DOTALL)
_SAME = re.compile(r"The profiles ([^.]*) are `matrix` in half precision\.")
_PROFILE = re.compile(r"^\| `([\w-]+)` \| ([\w, ]+) \|((?: \S+ \|){7})$", re.MULTILINE)
#: Other texts of formulas, to show that a difference is seen.
CHANGES = {}
_PARAMETERS = ("inputs", "left_out", "terms", "block", "weights", "u_products", "flushed")


@cache
def sections():
    """The formulas under each heading, as pairs of a name and a line. Continued lines are indented."""
    found = {}
    for part in re.split(r"^#{2,4} ", PAGE, flags=re.MULTILINE)[1:]:
        blocks = [re.sub(r"\n(?=[ )])", " ", block).splitlines() for block in _BLOCK.findall(part)]
        found[part.partition("\n")[0]] = [[_FORMULA.fullmatch(x).groups() for x in lines] for lines in blocks]
    return found


@cache
def profiles():
    """The parameters of each profile, by its name and a dtype: a table, and which are `matrix`."""
    found = {}
    for name, dtypes, cells in _PROFILE.findall(PAGE):
        numbers = [2.0 ** int(x[2:]) if "^" in x else int(x) for x in cells.replace("|", " ").split()]
        found |= {(name, dtype): dict(zip(_PARAMETERS, numbers, strict=True)) for dtype in dtypes.split(", ")}
    for name in re.findall("`(.*?)`", _SAME.search(" ".join(PAGE.split()))[1]):
        found |= {(name, dtype): found["matrix", dtype] for dtype in SHORT}
    return found


class Numbers(dict):
    """Numbers by name: those of a call, and those that formulas give, computed where they are needed."""

    def __init__(self, known, formulas):
        super().__init__(FUNCTIONS | known)
        self.formulas = {name: formula for name, *formula in formulas if name not in known}

    def __missing__(self, name):
        if name not in self.formulas:
            raise KeyError(name)
        indices, arguments, text = self.formulas[name]
        text = CHANGES.get(text, text)
        value = eval(f"lambda {indices or arguments or ''}: ({text})", self)
        if indices:
            self[name] = Elements(value)
        else:
            self[name] = value if arguments else value()
        return self[name]


class Elements(dict):
    """Elements by index, each computed once."""

    def __init__(self, element):
        super().__init__()
        self.element = element

    def __missing__(self, index):
        with np.errstate(all="ignore"):
            self[index] = self.element(*index) if isinstance(index, tuple) else self.element(index)
        return self[index]


class Zeros(dict):
    """Errors that no formula defines."""

    def __missing__(self, index):
        return 0


def symbols(dtype, accuracy="full", profile=""):
    """The symbols of a class and a profile."""
    storage = FORMATS[dtype]
    work, lse = FORMATS[dtype if accuracy == "storage" else storage.working], FORMATS[storage.lse]
    return {
        "u": work.unit,
        "tiny": work.normal,
        "u_s": storage.unit,
        "tiny_s": storage.normal,
        "least_s": storage.subnormal,
        "u_l": lse.unit,
        "least_l": lse.subnormal,
        "cast": int(accuracy == "cast" and dtype in SHORT),
        **profiles().get((profile, dtype), dict.fromkeys(_PARAMETERS, 0)),
    }


def formulas(*headings, block=0):
    """The formulas of some sections, and of those that all of them use. Later ones replace earlier ones."""
    of_all = [*sections()["Roundings and sums"][0], *sections()["Accuracy classes"][0]]
    return of_all + [
        one for heading in headings for one in sections()[heading][min(block, len(sections()[heading]) - 1)]
    ]
