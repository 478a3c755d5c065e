"""What `attnspec init` writes of a function that takes few calls, or is wrong in nearly all."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from conventions import of_the_first_length

from attnspec.backends import BackendError, load
from attnspec.backends.user.inference import infer_configuration
from attnspec.conformance import check
from attnspec.conformance.cli.main import main
from attnspec.operations.aliases import meant

#: Functions with unusual conventions.
CONVENTIONS = Path(__file__).parent / "conventions.py"
#: Kernels over packed rows and pages.
SERVED = Path(__file__).parent / "served.py"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parent)])


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (
            f"{SERVED}:decode_of_a_wrong_scale",
            "no call computed paged_attention; with this layout it is nearest",
        ),
        ("conventions:wrong_altogether", "no call computed attention; with this layout it is nearest, by 0."),
    ],
)
def test_a_function_that_is_always_wrong_is_described_by_the_nearest_and_fails(place, said):
    run = CliRunner().invoke(main, ["init", place])
    assert (run.exit_code, said in run.output) == (0, True), run.output
    found = check(load("."), rules=["SOFT-1", "PAGE-1"], dtypes=["float32"], quick=True)
    assert [verdict for verdict in found.report.results.verdicts if verdict.bad]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "of_whole_tiles",
            "multiple = [16, 32]  # it raised an error with other numbers of queries",
        ),
        ("wrong_past_whole_tiles", 'layout = "BHSD"  # the results are correct with heads before positions'),
        ("with_half_a_bias", 'bias = "position_bias"  # by its name alone'),
        ("with_a_mask_of_no_effect", 'mask = "attn_mask"'),
        ("of_square_tiles", 'lengths = "equal"  # it raised an error with more keys than queries'),
        ("of_square_tiles", "multiple = [16, 16]"),
        (
            "wrong_beside_a_square",
            'more keys than queries no call was: if it takes none, write lengths = "equal"',
        ),
        ("wrong_past_whole_tiles", 'scale = "softmax_scale"\n'),
        ("that_reads_past_the_end", 'heads = "equal"  # it read past the end of an array with two key heads'),
    ],
)
def test_what_calls_of_whole_tiles_and_memory_past_the_end_show(name, line):
    assert line in infer_configuration(f"conventions:{name}")


@pytest.mark.parametrize(("name", "wrong"), [("of_transformers", ""), ("of_transformers_tiled", "HEAD-1")])
def test_a_function_that_transformers_can_register_is_judged(name, wrong):
    assert CliRunner().invoke(main, ["init", f"{CONVENTIONS}:{name}"]).exit_code == 0
    checked = CliRunner().invoke(main, ["check", "--smoke"])
    assert (checked.exit_code, wrong in checked.output) == (bool(wrong), True), checked.output


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("with_half_a_bias", "SCORE-4"),
        ("with_a_mask_of_no_effect", "MASK-1"),
        ("with_an_lse_of_base_two", "SOFT-6"),
    ],
)
def test_a_known_argument_that_is_wrong_is_passed_and_judged(name, rule):
    Path("attnspec.toml").write_text(infer_configuration(f"conventions:{name}"))
    found = check(load("."), rules=[rule], dtypes=["float32"], quick=True)
    assert rule in {verdict.rule for verdict in found.report.results.verdicts if verdict.bad}


def test_a_rotation_is_told_not_to_be_describable():
    with pytest.raises(BackendError, match="cos and sin: no key describes a rotation") as caught:
        infer_configuration("conventions:that_rotates")
    assert str(caught.value).endswith("return that_rotates(q, k, v, cos=ONES, sin=ZEROS)")


def test_the_report_says_which_entries_of_the_output_are_wrong():
    said = {"names": {"query": "q", "key": "k", "value": "v", "key_lengths": "kv_lens"}, "quick": True}
    text = check(of_the_first_length, rules=["MASK-9"], dtypes=["float32"], **said).text
    assert "the first of the batch entries is right in every failing call" in " ".join(text.split())


@pytest.mark.parametrize("name", ["sink_logits", "attn_sink", "sinks", "s_aux", "attention_sinks"])
def test_the_names_of_sinks_have_a_suggestion(name):
    assert meant(name) == ("sinks",)


def test_arrays_that_are_joined_in_one_parameter_are_judged():
    Path("attnspec.toml").write_text(text := infer_configuration("conventions:of_joined_arrays"))
    assert 'query = "qkv"\nkey = "qkv"\nvalue = "qkv"\n' in text
    found = check(load("."), rules=["SOFT-1", "MASK-3"], dtypes=["float32"], quick=True)
    assert found.good, found.text
    verdicts = found.report.results.verdicts
    assert [verdict.status for verdict in verdicts].count("pass") > 5
    unequal = [verdict for verdict in verdicts if "as many keys as queries" in verdict.reason]
    assert [verdict.declined for verdict in unequal] == [False] * len(unequal) != []


NAMED = """
from attnspec.reference import function


def paged_attention(query, key_pages, value_pages, *, block_table, key_lengths, scale=None):
    pages = [x.swapaxes(-2, -3) for x in (key_pages, value_pages)]
    options = {"block_table": block_table, "key_lengths": key_lengths, "scale": scale}
    return function("paged_attention")(query[..., None, :], *pages, **options)[..., 0, :]


def rotary(features, positions):
    return features


def merge_heads(split):
    raise RuntimeError("no device")
"""


@pytest.mark.parametrize(
    ("attribute", "lines"),
    [
        ("paged_attention", ['layout = "BSHD"', "one_query = true"]),
        ("rotary", ['operation = "rotary"  # it has the name and the arguments']),
        ("merge_heads", ['operation = "merge_heads"  # it has the name and the arguments']),
    ],
)
def test_a_function_with_the_name_of_an_operation_is_called_too(attribute, lines):
    Path("own.py").write_text(NAMED)
    run = CliRunner().invoke(main, ["init", f"./own.py:{attribute}"])
    assert run.exit_code == 0, run.output
    assert all(line in run.output for line in lines), run.output
