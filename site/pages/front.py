"""The front page, and the page about citing."""

from pages.chapters import BESIDE, GUIDES, questions_of
from pages.known import Known
from pages.page import Name, Page, Part, make_page

from attnspec import CHAPTERS, __version__
from attnspec.backends.names import LIBRARY_NAMES

#: Questions of readers, with the rules that answer them.
_QUESTIONS = (
    ("What does a query with nothing to attend to give?", "zeros", ("MASK-6", "SOFT-7", "GRAD-10")),
    (
        "To which corner is a causal mask aligned?",
        "top left, unless there is an offset",
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
        Name("page", "Questions", "questions.html", "frequently questions_of questions, with answers"),
        Name("page", "Rules", "rules/index.html", "all rules, by chapter"),
        Name("page", "Operations", "operations/index.html", "every argument, with its other names"),
        Name("page", "Cases", "cases/index.html", "golden vectors and generated cases, by chapter"),
        Name("page", "Gallery", "gallery/index.html", "wrong implementations, and what finds each"),
        Name("page", "Findings", "findings/index.html", "what released libraries do otherwise"),
        Name("page", "Libraries", "libraries/index.html", "levels, deviations and findings of libraries"),
    ]
    pages = [
        _front(known),
        make_page("citing", "citing.md"),
        make_page("search", "search.md"),
        _questions(known),
    ]
    if results:
        names += [
            Name("page", "Results", "results/index.html", "what each library passes, rule by rule"),
            Name("page", "Compare", "results/compare.html", "two runs, or your own results file"),
        ]
        # The page of the matrix takes its place. Sphinx lists it in the contents.
        pages.append(make_page("results/index", "results.md"))
    return Part(tuple(pages), tuple(names))


def _questions(known: Known) -> Page:
    """Return the page of the frequently questions_of questions of the standard."""
    readme = (known.root / "spec" / "README.md").read_text(encoding="utf-8")
    return make_page("questions", "questions.md", questions=questions_of(readme))


def _front(known: Known) -> Page:
    matrix = (
        ("results/index.html", "Can I use", "what each library and version passes, rule by rule"),
        ("results/compare.html", "Compare", "two libraries, two versions, or your own results file"),
    )
    cards = [
        (
            "spec/index.html",
            "The standard",
            f"{len(known.rules)} rules in {len(CHAPTERS)} chapters, each one sentence with an id",
        ),
        (
            "rules/index.html",
            "Rules",
            "one page each: reasons, variants, vectors, tests, wrong implementations, findings",
        ),
        *(matrix if known.columns else ()),
        (
            "libraries/index.html",
            "Libraries",
            f"levels, dialects and deviations of {len(LIBRARY_NAMES)} libraries",
        ),
        (
            "findings/index.html",
            "Findings",
            f"{len(known.findings)} calls of released libraries that a rule does not allow, by rank",
        ),
        (
            "spec/calls.html",
            "Calls of kernel libraries",
            "FlashAttention, cuDNN, vLLM and FlashInfer, argument by argument",
        ),
        ("guide/ten-minutes.html", "Test your kernel", "install, run, read the report: ten minutes"),
        ("operations/index.html", "Operations", "every argument, with the names that libraries use for it"),
        (
            "gallery/index.html",
            "Gallery",
            f"{len(known.entries):,} wrong implementations, and what finds them",
        ),
    ]
    return make_page(
        "index",
        "front.md",
        cards=cards,
        questions=_QUESTIONS,
        chapters=CHAPTERS,
        version=__version__,
        vectors=len(known.cases),
        generated=sum(count.number for count in known.counts),
        contents=_contents(results=bool(known.columns)),
    )


def _contents(*, results: bool) -> dict[str, list[str]]:
    """Return the pages of each part of the table of contents."""
    guides = [guide for guide in GUIDES.values() if guide != "changes"]
    beside = [name for name in BESIDE if name not in ("levels", "glossary", "calls", "dialects")]
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
            "spec/calls",
            "spec/dialects",
        ],
        "The standard": ["spec/index", *(f"spec/{name}" for name in (*CHAPTERS, *beside))],
        "Use it": [*guides, "changes", "citing"],
    }
