"""The registry of ids, and digests of the normative content, which identify the text of a version."""

import hashlib
import json
import lzma
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any

import attnspec
from attnspec import CHAPTERS, OPERATIONS, levels, rules
from attnspec.conformance.run.plan import PATH
from attnspec.reference import budget
from attnspec.reference.budget.arithmetic import PROFILES

#: The ids that no text has any more, and the last version that had each. They stay reserved.
WITHDRAWN: Mapping[str, str] = MappingProxyType({})
_SPEC = Path(attnspec.__file__).parent
_PROTOCOL = _SPEC / "conformance" / "protocol.md"
#: The sections that define a budget, and the formulas in a section: blocks of Python and of LaTeX, and
#: indented lines.
_SECTION = re.compile(r"^## [^\n]*\bbudget\b[^\n]*\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
#: What a page with sentences that bind says of itself, in the line that has its version.
_NORMATIVE = "This page is normative."
_STAMP = re.compile(r"^\*attnspec [^\n]*\*$", re.MULTILINE)
_FORMULA = re.compile(r"^```(?:python|math)\n.*?^```$|^ {4,}\S.*$", re.MULTILINE | re.DOTALL)


def registry() -> Iterator[tuple[str, str, str]]:
    """Yield each id with its kind and what else is known of it, the withdrawn ones last."""
    for rule in rules():
        yield "rule", rule.id, f"{rule.level} {rule.chapter}"
    for rule in rules():
        for variant in rule.variants:
            yield "variant", f"{rule.id}:{variant.name}", rule.chapter
    for level in levels():
        yield "level", level.name, f"builds on {level.builds_on}" if level.builds_on else ""
    for name, dtypes in PROFILES.items():
        yield "profile", name, ", ".join(dtypes)
    for name, operation in OPERATIONS.items():
        yield "operation", name, ", ".join(operation.arguments)
    for name, version in WITHDRAWN.items():
        yield "withdrawn", name, version


def digests() -> dict[str, str]:
    """Return a digest of each part of the normative content."""
    return {name: _digest(content) for name, content in _contents()}


def _contents() -> Iterator[tuple[str, Any]]:
    """Yield the parts of the normative content, as JSON can hold them."""
    pages = {path.stem: path.read_text("utf-8") for path in (*sorted(_SPEC.glob("*.md")), _PROTOCOL)}
    yield (
        "text",
        [[name, _STAMP.sub("", text).split()] for name, text in pages.items() if _NORMATIVE in text[:200]],
    )
    yield (
        "rules",
        [
            [rule.id, rule.level, rule.sentence, [variant.name for variant in rule.variants]]
            for rule in rules()
        ],
    )
    yield (
        "levels",
        [
            [level.name, level.rules, level.where_offered, level.builds_on, level.accuracy]
            for level in levels()
        ],
    )
    yield "budgets", [*_formulas(), *_constants(), repr(PROFILES)]
    yield (
        "operations",
        [
            [name, repr([*operation.arguments.values()]), repr(operation.results)]
            for name, operation in OPERATIONS.items()
        ],
    )
    yield "vectors", [json.loads(path.read_text("utf-8")) for path in sorted(_SPEC.glob("vectors/*.json"))]
    yield "cases", lzma.decompress(PATH.read_bytes()).decode()


def _formulas() -> Iterator[str]:
    for chapter in CHAPTERS:
        text = (_SPEC / f"{chapter}.md").read_text(encoding="utf-8")
        for section in _SECTION.finditer(text):
            yield from _FORMULA.findall(section[1])


def _constants() -> Iterator[list[Any]]:
    for name in sorted(found.name for found in iter_modules(budget.__path__)):
        module = import_module(f"{budget.__name__}.{name}")
        for constant, value in sorted(vars(module).items()):
            if constant.isupper() and isinstance(value, int | float):
                yield [name, constant, value]


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
