"""The page about ranks works as written, with its commands and edits, and the examples conform."""

import re
import shlex
from pathlib import Path

import pytest
from test_ten_minutes import edited, removed
from tests_support import attnspec

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "conformance" / "ranks.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.partition("## What a rank")[0], re.MULTILINE | re.DOTALL)
RINGS = ROOT / "examples" / "ring"


@pytest.fixture
def ring(tmp_path):
    """The function of the page, in a folder of its own."""
    path = tmp_path / "my_ring.py"
    path.write_text(BLOCKS[0][1])
    return path


@pytest.mark.exhaustive
def test_from_three_bugs_to_none_by_the_page_alone(ring):
    """Every command and edit in order. What is shown is printed by a command before it."""
    shown, statuses = "", []
    for language, text in BLOCKS[1:]:
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


@pytest.mark.parametrize(
    "words",
    [("torch_ring:ring", "--ranks", "4"), ("jax_ring:sharded_attention",), ("dask_tree:sharded_attention",)],
)
@pytest.mark.sample(2)
def test_an_example_conforms(words):
    """Some calls of each: in an order, with empty shards, and for gradients."""
    cases = [
        "sharding-in-order-zigzag",
        "sharding-shards-of-sizes-neither",
        "sharding-gradients-over-ranks-4",
    ]
    chosen = [word for case in cases for word in ("-k", case)]
    run = attnspec("check", *words, *chosen, cwd=RINGS, status=0)
    assert re.search(r"[1-9][0-9]* pass", run.stdout)


def test_a_ring_takes_parts_of_the_heads():
    """The ranks with a part of the heads are a ring of their own; a part may have no head."""
    cases = [f"sharding-heads-over-ranks-{parts}" for parts in ("whole-groups", "parts-without-heads")]
    chosen = [word for case in cases for word in ("-k", case)]
    run = attnspec("check", "torch_ring:ring", "--ranks", "4", *chosen, cwd=RINGS)
    assert run.returncode == 0, run.stdout
    assert "values: 4 pass" in run.stdout


@pytest.mark.exhaustive
def test_the_ring_of_pytorch_gives_its_order_and_its_gradients():
    """It declines shards of other sizes and depths, which are most cases."""
    order = "contiguous", "zigzag"
    cases = [f"sharding-gradients-in-order-{name}-1-bfloat16" for name in order]
    chosen = [word for case in cases for word in ("--case", case)]
    run = attnspec("check", "torch_context_parallel:ring", "--ranks", "4", *chosen, cwd=RINGS, status=0)
    assert "2 pass" in run.stdout
