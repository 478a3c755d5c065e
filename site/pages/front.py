"""The front page, and the page about citing."""

import re
from collections import Counter
from pathlib import Path

from pages.chapters import BESIDE, GUIDES, questions_of
from pages.known import Known
from pages.page import Name, Page, Part, make_page, plural
from pages.whys import names_of_whys, read_whys

from attnspec import CHAPTERS, __version__
from attnspec.backends.names import library_of

#: Questions of readers, with the rules that answer them.
_QUESTIONS = (
    (
        "What does a query with nothing to attend to give?",
        "zeros, and an lse of -inf",
        ("MASK-6", "SOFT-7", "GRAD-10"),
    ),
    (
        "To which corner is a causal mask aligned?",
        "top left, unless there is an offset (FlashAttention, MLX: bottom right)",
        ("MASK-3", "MASK-7"),
    ),
    ("Is a window inclusive?", "yes, both bounds", ("MASK-8",)),
    ("Does True in a mask mean attend?", "yes", ("MASK-1",)),
    ("Which key head serves a query head?", "consecutive query heads share one", ("HEAD-1", "HEAD-2")),
    ("Is the softcap before the mask?", "yes, and before the bias", ("SCORE-5",)),
    ("May padding hold NaN?", "finite numbers must not matter, NaN should not", ("MASK-12", "MASK-13")),
    ("Base and dtype of the lse?", "e, float32 or wider", ("SOFT-6", "NUM-7")),
    ("How large may an error be?", "each element has an allowed error", ("NUM-3", "NUM-5")),
)


def front(known: Known) -> Part:
    """Return the front page, the page of questions, and the page about citing."""
    results = bool(known.columns)
    names = [
        Name("page", "front", "index.html", "the front page"),
        Name("page", "citing", "citing.html", "how to cite a rule"),
        Name(
            "page",
            "Try it here",
            "try.html",
            "paste one row: exact output, allowed error, verdict",
            ("try", "playground", "calculator", "judge one row", "allowed error of my output"),
        ),
        Name("page", "Licence", "spec/versions.html#rights", "the MIT licence", ("license", "copyright")),
        Name("page", "Questions", "questions.html", "frequently asked questions, with answers"),
        *names_of_whys(known),
        Name("page", "Rules", "rules/index.html", "all rules, by chapter"),
        Name("page", "Operations", "operations/index.html", "every argument, with its other names"),
        Name("page", "Cases", "cases/index.html", "golden vectors and generated cases, by chapter"),
        Name("page", "Gallery", "gallery/index.html", "wrong implementations, and what finds each"),
        Name("page", "Findings", "findings/index.html", "what released libraries do otherwise"),
        Name("page", "Libraries", "libraries/index.html", "levels, deviations and findings of libraries"),
    ]
    pages = [
        _front(known),
        make_page("citing", "citing.md", version=__version__),
        make_page("search", "search.md"),
        make_page("try", "try.md"),
        make_page("404", "404.md"),
        _questions(known),
    ]
    if results:
        names += [
            Name("page", "Results", "results/index.html", "what each library passes, rule by rule"),
            Name("page", "Compare", "results/compare.html", "two runs, or your own results file"),
        ]
        # The page of the matrix takes its place. Sphinx lists it in the contents.
        pages.append(make_page("results/index", "results.md"))
    copied: dict[str, str | Path] = {
        "_static/preview.png": known.root / "site" / "pictures" / "matrix.png",
        "files/LICENSE": known.root / "LICENSE",
    }
    return Part(tuple(pages), tuple(names), copied)


def _questions(known: Known) -> Page:
    """Return the page of the frequently asked questions of the standard."""
    readme = (known.root / "spec" / "README.md").read_text(encoding="utf-8")
    return make_page("questions", "questions.md", questions=questions_of(readme), whys=read_whys())


def _front(known: Known) -> Page:
    results = bool(known.columns)
    of_libraries = [("results/index.html", "What each library passes, rule by rule")] if results else []
    of_libraries += [
        ("libraries/index.html", "A library: its levels, deviations and findings"),
        ("spec/calls.html", "A call of FlashAttention, cuDNN, vLLM or FlashInfer, argument by argument"),
    ]
    doors = (
        (
            "Test a kernel",
            "The suite calls a function, names the rule that it breaks, and prints code that shows it.",
            [
                ("guide/ten-minutes.html", "Ten minutes, with a kernel that has three bugs"),
                ("guide/pack.html", "Cases as files, for C, Rust and JavaScript"),
                ("try.html", "One row of numbers, judged in the browser: is 0.008 right?"),
            ],
        ),
        (
            "Look up a rule",
            "Each rule is one sentence with a permanent id, its reasons, vectors, tests and findings.",
            [
                ("symptoms.html", "By what you see: NaN, an offset of one, another result with a cache"),
                ("rules/index.html", "By chapter"),
                ("operations/index.html", "By an argument, in the names of any library"),
            ],
        ),
        (
            "What does library X do?",
            "Results of released versions, rule by rule, and findings with scripts.",
            of_libraries,
        ),
    )
    readme = (known.root / "README.md").read_text(encoding="utf-8")
    printed = readme.partition("```text\n")[2].partition("```")[0]
    return make_page(
        "index",
        "front.md",
        rules=len(known.rules),
        doors=doors,
        printed=printed,
        figures=figures(known),
        questions=_QUESTIONS,
        chapters=CHAPTERS,
        version=__version__,
        contents=_contents(results=results),
    )


def figures(known: Known) -> list[str]:
    """Return what there is, in numbers that are counted here."""
    names = {finding.name for finding in known.findings}
    bugs = len({finding.name for finding in known.findings if finding.rank == "promise"})
    alone = len({finding.name for finding in known.findings if not finding.family})
    families = plural(len(known.families), "family", "families")
    generated = sum(count.number for count in known.counts)
    texts = [
        f"{len(known.rules)} rules in {len(CHAPTERS)} chapters",
        f"{len(known.cases)} golden vectors with proven values, {generated:,} generated cases",
        f"{len(known.entries):,} wrong implementations, which the suite is tested against",
        (
            f"{len(names)} findings about released libraries: {alone} have a script each, and the others are "
            f"in {families}, each with one. {bugs} of the {len(names)} break a documented promise: bugs"
        ),
    ]
    if known.columns:
        judged = known.keepers()
        libraries = plural(len({library_of(backend) for backend in judged}), "library", "libraries")
        portable = {library_of(column.backend) for column in known.columns if column.backend not in judged}
        more = len(portable - {*map(library_of, judged)})
        most = max(Counter(column.backend for column in known.columns).values())
        versions = "one version of each" if most == 1 else f"up to {most} versions of each"
        texts.append(
            f"Results of {len(judged)} functions of {libraries}, {versions}, "
            f"and of our own portable code on {plural(len(portable), 'library', 'libraries')}, "
            f"{more} of them not among these. {_standards(known)}"
        )
    return texts


def _standards(known: Known) -> str:
    """Return by which versions of the standard the stored runs were judged."""
    versions = Counter(column.attnspec for column in known.columns)
    order = sorted(versions, key=lambda version: [int(number) for number in re.findall("[0-9]+", version)])
    if len(order) < 2:
        return f"They are by version {' '.join(order)} of the standard"
    newest = plural(versions[order[-1]], "run")
    return (
        f"They are by versions {order[0]} to {order[-1]} of the standard, {newest} by the last. "
        "The page of each run names its version"
    )


def _contents(*, results: bool) -> dict[str, list[str]]:
    """Return the pages of each part of the table of contents."""
    guides = [guide for guide in GUIDES.values() if guide != "changes"]
    beside = [
        name for name in BESIDE if name not in ("levels", "glossary", "frameworks", "calls", "dialects")
    ]
    return {
        "Look up": [
            "symptoms",
            "rules/index",
            "questions",
            "operations/index",
            "spec/levels",
            "spec/glossary",
            "cases/index",
            "gallery/index",
            "pictures",
        ],
        "Libraries": [
            *(["results/index"] if results else []),
            "libraries/index",
            "findings/index",
            "spec/frameworks",
            "spec/calls",
            "spec/dialects",
        ],
        "The standard": ["spec/index", *(f"spec/{name}" for name in (*CHAPTERS, *beside))],
        "Use it": ["try", *guides, "changes", "citing"],
    }
