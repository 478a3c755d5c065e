"""The README and the pages of ten minutes and of ranks work as written: commands, edits, output."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml
from tests_support import attnspec, command, python

from attnspec import levels
from attnspec.backends import NAMES
from attnspec.backends.check import check_constraints
from attnspec.backends.user.configuration import check_keys
from attnspec.backends.user.convention import check_convention
from attnspec.backends.user.settings import settings_of_table
from attnspec.conformance.attribution.known_failures import read_known
from attnspec.conformance.cli.main import main

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "TEN_MINUTES.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks_of(page):
    """The languages and texts of the blocks of code of a page."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def blocks(language, page=PAGE):
    return [text for name, text in blocks_of(page) if name == language]


#: The files that the sixth section writes, by their language.
WRITTEN = {"python": "my_backward.py", "toml": "attnspec.toml"}


def removed(diff):
    return "".join(line[1:] for line in diff.splitlines(keepends=True) if line[0] == "-")


def edited(source, diff):
    """Take the lines with a minus out of a source, and put those with a plus in their place."""
    old = removed(diff)
    new = "".join(line[1:] for line in diff.splitlines(keepends=True) if line[0] == "+")
    assert source.count(old) == 1
    return source.replace(old, new)


@pytest.fixture
def kernel(tmp_path):
    """The kernel of the page, in a folder of its own."""
    source = blocks("python")[0]
    path = tmp_path / "my_attention.py"
    path.write_text(source)
    return path


@pytest.mark.exhaustive
def test_from_fails_to_passes_by_the_page_alone(kernel):
    """Every command, file and edit of its third to sixth sections, in order; each text is shown."""
    found = blocks_of(PAGE)
    languages = [language for language, _ in found]
    walk = found[languages.index("python") + 1 : languages.index("yaml")]
    shown, outcomes = "", []
    for language, text in walk:
        if language == "sh":
            for command in text.splitlines():
                run = attnspec(*shlex.split(command)[1:], cwd=kernel.parent)
                shown += run.stdout
                outcomes.append(
                    (command.removeprefix("attnspec check my_attention:attention").strip(), run.returncode)
                )
        elif language == "diff":
            (path,) = [one for one in kernel.parent.glob("*.py") if removed(text) in one.read_text()]
            path.write_text(edited(path.read_text(), text))
        elif language in WRITTEN:
            (kernel.parent / WRITTEN[language]).write_text(text)
        else:
            for line in text.splitlines():
                assert line in shown or line in " ".join(shown.split())
    assert outcomes == [
        ("--quick", 1),
        ("-k HEAD-1", 0),
        ("--case heads-eight-over-two", 0),
        ("-k MASK-6", 0),
        ("-k ERR-15 --require refusals", 1),
        ("", 0),
        ("attnspec check -k GRAD", 1),
        ("attnspec check --level trainable", 0),
    ]


def test_what_cannot_be_mended_today(kernel):
    """The two commands on known failures, on the kernel with its bugs, in a part of the suite."""
    first, second = (shlex.split(line)[1:] for line in blocks("sh")[-1].splitlines())
    part = ["--case", "masking-empty-last"]
    attnspec(*first, *part, cwd=kernel.parent, status=0)
    assert "masking-empty-last" in (kernel.parent / "known.toml").read_text()
    run = attnspec(*second, *part, cwd=kernel.parent, status=0)
    kernel.write_text(
        "from attnspec.reference import attention as whole\n\n\n"
        "def attention(query, key, value, *, mask=None):\n"
        "    return whole(query, key, value, mask=mask, dtype=query.dtype)\n"
    )
    run = attnspec(*second, *part, cwd=kernel.parent, status=1)
    assert "cases do not fail any more; remove them: masking-empty-last-" in run.stdout


def test_the_files_of_the_page_are_understood(tmp_path):
    path = tmp_path / "known.toml"
    path.write_text(next(text for text in blocks("toml") if "[[known]]" in text))
    (entry,) = read_known(path)
    assert entry.cases == ("masking-*",)
    text = next(text for text in blocks("toml") if "layout" in text)
    table = tomllib.loads(text)["backend"]
    check_keys("page", table)
    settings = settings_of_table("page", "b", table)
    check_convention("b", settings.convention)
    check_constraints("b", settings.fields["constraints"])


#: The kernels that the wrappers of the page call.
KERNELS = """
import numpy as np
from attnspec.reference import attention

def write_into(output, query, key, value, scale):
    output[...] = attention(query, key, value, scale=scale)

def grouped(query, key, value):
    assert query.ndim == 5
    return attention(query, key[..., None, :, :], value[..., None, :, :]).astype(query.dtype)

class Cache:
    def __init__(self):
        self.parts = []

    def append(self, *new):
        self.parts.append(new)

    def attend(self, query):
        key, value = (np.concatenate(x, axis=-2) for x in zip(*self.parts))
        return attention(query, key, value).astype(query.dtype)
"""


@pytest.mark.parametrize("name", ["returned", "of_five_axes", "of_a_cache"])
def test_the_wrappers_of_the_page_conform(tmp_path, name):
    (tmp_path / "my_kernels.py").write_text(KERNELS)
    (tmp_path / "wrap.py").write_text(blocks("python")[-1])
    (tmp_path / "attnspec.toml").write_text(f'[backend]\nfunction = "wrap:{name}"\naxes = 4\n')
    run = attnspec(
        "check", *(x for rule in ("HEAD-1", "SOFT-1", "SHAPE-3") for x in ("-k", rule)), cwd=tmp_path
    )
    assert re.search(r"values: [1-9][0-9]+ pass", run.stdout), run.stdout
    assert run.returncode == 0, run.stdout


def test_the_step_of_the_workflow_has_inputs_of_the_action_and_options_exist():
    (workflow,) = blocks("yaml")
    (step,) = yaml.safe_load(workflow)
    assert set(step["with"]) <= set(yaml.safe_load((ROOT / "action.yml").read_text())["inputs"])
    options = re.findall(r"(?<![-\w])--[a-z-]+", PAGE.replace("--pyargs", "").replace("--backend", ""))
    known = attnspec("check", "--help").stdout
    assert {option for option in options if option not in known} == set()


def test_two_runs_are_compared(kernel):
    """Of the kernel with its bugs, which it has both times."""
    (three,) = [block for block in blocks("sh") if "compare" in block]
    ended = [attnspec(*shlex.split(line)[1:], cwd=kernel.parent) for line in three.splitlines()]
    assert [run.returncode for run in ended] == [1, 1, 0]
    assert "regressions: 0" in ended[2].stdout


def test_the_route_by_pytest_alone(kernel):
    (command,) = re.findall(r"`(pytest --pyargs [^`]*)`", PAGE)
    words = shlex.split(f"-m {command} --case notation-lse-float32 -q -p no:cacheprovider")
    run = python(*words, cwd=kernel.parent, status=1)
    assert "HEAD-1 Query heads share key heads" in run.stdout


PAGES = (
    "README.md",
    "TEN_MINUTES.md",
    "PACKAGE.md",
    *(f"conformance/{n}.md" for n in ("ranks", "running", "sizes", "untrusted")),
)


def test_the_readme_is_short_and_promises_no_package_index():
    assert len(README.splitlines()) <= 150
    (source,) = blocks("python", README)
    assert len(source.splitlines()) <= 10
    shown = [page for page in PAGES if "MASK-6 A row with nothing to attend to" in (ROOT / page).read_text()]
    assert shown == ["README.md"]
    for page in (PAGE, README):
        assert not re.search(r"pip install '?attnspec", page)
    *_, tests = [line for line in blocks("sh", README)[-1].splitlines() if "nox" in line]
    assert tests.replace("install nox", "install --quiet nox") in (ROOT / ".ci" / "run").read_text()
    # A package index shows it elsewhere, so it has no relative link.
    page = (ROOT / "PACKAGE.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((?!https://)", page) == []
    assert re.findall(r"^\[[^]]+\]: (?!https://)", page, re.MULTILINE) == []
    assert page.splitlines()[2].startswith("attnspec is a specification of scaled dot-product attention")


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_of_a_page_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = "\n".join(blocks("sh", text)).splitlines()
    lines += [
        " ".join(code.split()) for code in re.findall(r"`([^`]+)`", re.sub(r"(?ms)^```.*?^```$", "", text))
    ]
    for line in lines:
        if not line.startswith("attnspec ") or line.split()[1].startswith("-"):
            continue
        word, options = line.split()[1], set(re.findall(r"(?<![-\w])--[a-z-]+", line.partition("#")[0]))
        assert word in main.commands
        known = command(word, "--help").output
        assert {option for option in options if option not in known} == set()


def test_the_results_are_of_every_backend_and_name_levels():
    section = (
        (ROOT / "RESULTS.md").read_text(encoding="utf-8").partition("## Levels")[2].partition("\n## ")[0]
    )
    rows = re.findall(r"^\| ([\w-]+) \|.*\| ([^|]*) \|$", section, re.MULTILINE)
    reached = {name: text for name, text in rows if name in NAMES}
    assert set(reached) == set(NAMES)
    known = {level.name for level in levels()}
    for text in reached.values():
        words = set(re.findall(r"(?<![A-Z])[a-z][a-z-]+", text))
        assert words - {"all", "but", "and", "none", "no", "deviate", "deviates"} <= known


RANKS_PAGE = (ROOT / "conformance" / "ranks.md").read_text(encoding="utf-8")
RANKS_BLOCKS = blocks_of(RANKS_PAGE.partition("## What a rank")[0])
RINGS = ROOT / "examples" / "ring"


@pytest.fixture
def ring(tmp_path):
    """The function of the page, in a folder of its own."""
    path = tmp_path / "my_ring.py"
    path.write_text(RANKS_BLOCKS[0][1])
    return path


@pytest.mark.exhaustive
def test_from_three_bugs_to_none_by_the_page_alone(ring):
    """Every command and edit in order. What is shown is printed by a command before it."""
    shown, statuses = "", []
    for language, text in RANKS_BLOCKS[1:]:
        if language == "sh":
            run = attnspec(*shlex.split(text)[1:], cwd=ring.parent)
            shown += run.stdout
            statuses.append(run.returncode)
        elif language == "diff":
            assert removed(text) in ring.read_text()
            ring.write_text(edited(ring.read_text(), text))
        else:
            for line in text.splitlines():
                assert line in shown or line in " ".join(shown.split())
    assert statuses == [1, 1, 1, 1, 0]


def example(*words, cases):
    """What is said of an example that conforms in some cases."""
    chosen = [word for case in cases for word in ("-k", case)]
    return attnspec("check", *words, *chosen, cwd=RINGS, status=0).stdout


@pytest.mark.parametrize(
    "words",
    [("torch_ring:ring", "--ranks", "4"), ("jax_ring:sharded_attention",), ("dask_tree:sharded_attention",)],
)
@pytest.mark.sample(2)
def test_an_example_conforms(words):
    """Some calls of each: in an order, with empty shards, and for gradients."""
    cases = "sharding-in-order-zigzag", "sharding-shards-of-sizes-neither", "sharding-gradients-over-ranks-4"
    assert re.search(r"[1-9][0-9]* pass", example(*words, cases=cases))


def test_a_ring_takes_parts_of_the_heads():
    """The ranks with a part of the heads are a ring of their own; a part may have no head."""
    cases = [f"sharding-heads-over-ranks-{parts}" for parts in ("whole-groups", "parts-without-heads")]
    assert "values: 4 pass" in example("torch_ring:ring", "--ranks", "4", cases=cases)


@pytest.mark.exhaustive
def test_the_ring_of_pytorch_gives_its_order_and_its_gradients():
    """It declines shards of other sizes and depths, which are most cases."""
    order = "contiguous", "zigzag"
    cases = [f"sharding-gradients-in-order-{name}-1-bfloat16" for name in order]
    assert "2 pass" in example("torch_context_parallel:ring", "--ranks", "4", cases=cases)
