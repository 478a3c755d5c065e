"""The site of small results: the folder that Sphinx reads, which needs no Sphinx, and a sample of pages."""

import base64
import importlib.util
import json
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path

from html_results import verdict, write_run

SITE = Path(__file__).parents[1] / "site"
ASSETS = SITE.parent / "conformance" / "render" / "html" / "assets"


def stored(folder):
    """Results of backends of libraries on cases of MASK-6: one keeps it, one breaks it, others deviate.

    Two deviations are in a case of another rule.
    """
    names = ("masking-empty-first", "masking-empty-middle", "scores-zero-scale")
    runs = {
        "torch-sdpa": ("torch", "2", ["pass", "pass"]),
        "torch-mha": ("torch", "2", ["deviation", "pass"]),
        "ncnn-sdpa": ("ncnn", "1.5", ["pass", "fail"]),
        "mlx-fast": ("mlx", "1.5", ["unsupported"]),
        "tokamax-xla": ("tokamax", "1", ["pass", "pass", "deviation"]),
        "onnxruntime-mha": ("onnxruntime", "1", ["deviation", "pass", "deviation"]),
        "jax-portable": ("jax", "1", ["pass"]),
    }
    variants = {"torch-mha": "nan", "tokamax-xla": "nan", "onnxruntime-mha": "mask: uniform, bias: nan"}
    for name, (library, version, statuses) in runs.items():
        judged = [
            replace(
                verdict(name, case, "MASK-6", status),
                variant=variants.get(name, "") if status == "deviation" else "",
            )
            for case, status in zip(names, statuses, strict=False)
        ]
        path = folder / f"{name}-{version}-2026-01-31.jsonl"
        yield write_run(path, name, version, judged, library=library)


def unpacked(text):
    """The data of a script."""
    return json.loads(zlib.decompress(base64.b64decode(text)))


#: The address at which the sample of the site is said to be.
BASE = "https://example.org/attnspec"


def build_sample(folder):
    """Build a page of each kind, as a site is built, with results of a few backends."""
    results = folder / "results"
    results.mkdir()
    list(stored(results))
    command = [sys.executable, str(SITE / "build.py"), "--sample", "--out", str(folder)]
    command += ["--results", str(results), "--base", BASE, "--repository", "https://example.org/code"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 problems" in done.stdout
    return folder / "html"


class Site:
    """The folder that Sphinx reads, and the files beside its pages."""

    def __init__(self, folder, results):
        # A module of the name `build` is installed.
        spec = importlib.util.spec_from_file_location("site_build", SITE / "build.py")
        build = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(build)
        known = build.known_of(SITE.parent, tuple(build.read_columns(results)))
        self.folder, self.part = folder, build.write_sources(folder, known)
        self.names, self.columns = self.part.names, known.columns

    def page(self, path):
        return (self.folder / "source" / f"{path}.md").read_text(encoding="utf-8")

    def copies(self, case_id):
        """The code to copy of a golden vector, by dtype and format."""
        text = (self.folder / "html" / "_static" / "vectors" / f"{case_id}.js").read_text(encoding="utf-8")
        assert text.startswith(f'attnspecCase("{case_id}",')
        return unpacked(json.loads(text[text.index(",") + 1 : text.rindex(")")]))

    def search(self, queries, folder):
        """What the script of the pages finds first for each query: addresses, and an id that there is not."""
        names = (self.folder / "html" / "_static" / "names.js").read_text(encoding="utf-8")
        program = (
            f"const {{ prepare, search, unpack }} = require({json.dumps(str(ASSETS / 'search.js'))});"
            "globalThis.attnspecNames = async (data) => { const index = prepare(await unpack(data));"
            f"const said = {json.dumps([*queries])}.map((query) => search(index, query, 3));"
            "console.log(JSON.stringify(said.map(({ found, absent }) =>"
            "[found.map((one) => one.address), absent || '']))); };"
        )
        (folder / "search.js").write_text(program + names, encoding="utf-8")
        done = subprocess.run(["node", folder / "search.js"], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)
