"""Small results for the tests of the pages: every kind of verdict, two versions, and text from outside."""

import json
import lzma
from dataclasses import replace

from attnspec import rules
from attnspec.conformance.results import Footer, Header, Subject, line
from attnspec.conformance.verdict import Difference, Raise, Verdict

HOSTILE = "a, 100%</script><img src=x onerror=alert(1)>"
OFF = Difference("value", "output", (2, 0), 1.5, 0.25, 0.5, 2.5, 2, 6)


def verdict(backend, case, rule, status="pass", **told):
    told = {"dtype": "float32", "operation": "attention"} | told
    if status in ("fail", "error", "deviation", "should not met"):
        told.setdefault("rule", rule)
    return Verdict(backend, f"{case}-float32", "", (rule,), status, **told)


def verdicts(backend):
    """One verdict of each kind, and a rule without any."""
    return [
        verdict(backend, "masking-a", "MASK-1", share=0.25, accuracy="full", numbers=40),
        verdict(backend, "masking-b", "MASK-1", share=0.5, accuracy="full", numbers=500),
        verdict(backend, "masking-c", "MASK-4", "fail", difference=OFF, share=2.5, numbers=40),
        verdict(backend, "masking-d", "MASK-6", "deviation", variant="uniform", declared=("MASK-6",)),
        verdict(backend, "masking-e", "MASK-13", "should not met", reason="NaN reaches other rows"),
        verdict(backend, "masking-f", "MASK-8", "unsupported", reason=f"{backend} has no argument window"),
        verdict(backend, "errors-a", "ERR-1", "error", raised=Raise("ValueError", HOSTILE, "m.py", 3, "f")),
        replace(verdict(backend, "invariance-a", "INV-4", "unsupported"), rule="INV-4"),
    ]


def write_run(path, backend="mine:f", version="1.0", judged=None, *, library="numpy", part="whole"):
    """Write the results of one backend. A path that ends in .xz is compressed."""
    judged = verdicts(backend) if judged is None else judged
    header = Header("2026.1", part, cases=tuple(one.case for one in judged))
    lines = [line("header", header), line("subject", Subject(backend, library, version))]
    lines += [*(line("verdict", one) for one in judged), line("footer", Footer(len(judged)))]
    text = "".join(lines).encode()
    path.write_bytes(lzma.compress(text) if path.suffix == ".xz" else text)
    return path


def write_all(folder):
    """Write a backend in two versions, one that passes, and one with a hostile name."""
    repaired = [
        x if x.rule != "MASK-4" else verdict("mine:f", "masking-c", "MASK-4") for x in verdicts("mine:f")
    ]
    return [
        write_run(folder / "mine-1.0-2026-01-05.jsonl.xz"),
        write_run(folder / "mine-1.1-2026-02-05.jsonl", version="1.1", judged=repaired),
        write_run(folder / "good-2.0-2026-02-07.jsonl", "good:f", "2.0", every_rule("good:f")),
        write_run(folder / "bad-2026-02-06.jsonl", HOSTILE, HOSTILE, library=HOSTILE),
    ]


def every_rule(backend):
    """A verdict on every rule, all of which pass."""
    return [verdict(backend, f"case-{rule.id.lower()}", rule.id) for rule in rules()]


def data_of(path):
    """Return the data of a script of the folder."""
    text = path.read_text(encoding="utf-8")
    return json.loads(text[text.index(",") + 1 : text.rindex(")")])


def go(page, folder, address):
    """Open a page of results in a browser at an address."""
    page.goto("about:blank")  # the same page with another anchor is not loaded again
    page.goto(f"file://{folder}/{address}")
    if address.startswith(("index", "compare")):
        page.wait_for_selector("body[data-ready]")
