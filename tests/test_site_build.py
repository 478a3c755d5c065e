"""The site builds from a clone, with every link checked, and its notebooks run and show what they hold."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from built_site import BASE, SITE


def test_a_sample_of_the_site_builds_with_what_a_host_needs(sample):
    text = (sample / "rules" / "MASK-6.html").read_text(encoding="utf-8")
    assert "A row with nothing to attend to gives zero" in text
    assert (sample / "results" / "torch-sdpa.html").is_file()
    pages = [path for path in sample.rglob("*.html") if "files" not in path.parts]
    assert len(pages) > 20
    for path in pages:
        name, text = path.relative_to(sample).as_posix(), path.read_text(encoding="utf-8")
        (about,) = re.findall('<meta name="description" content="([^"]+)">', text)
        assert 25 < len(about) < 400, name
        assert f'<meta property="og:description" content="{about}">' in text
        (icon,) = re.findall('<link rel="icon" [^>]*href="([^"]+)">', text)
        assert (path.parent / icon).is_file(), name
        assert '<a href="https://example.org/code">' in text, name
        if name != "404.html":
            place = re.sub("(^|/)index.html$", r"\1", name)
            assert re.findall('<link rel="canonical" href="([^"]+)"', text) == [f"{BASE}/{place}"]
            (image,) = re.findall(f'<meta property="og:image" content="{BASE}/([^"]+)">', text)
            assert (sample / image).is_file()
    text = (sample / "rules" / "MASK-6.html").read_text(encoding="utf-8")
    assert '<meta name="description" content="For a query with no allowed key, the output' in text
    assert (sample / ".nojekyll").is_file()
    assert f"Sitemap: {BASE}/sitemap.xml" in (sample / "robots.txt").read_text(encoding="utf-8")
    spaces = {"map": "http://www.sitemaps.org/schemas/sitemap/0.9", "atom": "http://www.w3.org/2005/Atom"}
    site_map, feed = (ET.parse(sample / path) for path in ("sitemap.xml", "results/feed.xml"))
    listed = [each.text for each in site_map.iterfind("map:url/map:loc", spaces)]
    assert {f"{BASE}/", f"{BASE}/rules/MASK-6.html", f"{BASE}/results/"} <= {*listed}
    assert f"{BASE}/404.html" not in listed
    links = [each.get("href") for each in feed.iterfind(".//atom:link", spaces)]
    assert len(links) > 3
    assert all(link.startswith(f"{BASE}/results/") for link in links)
    # It is shown for any address, however deep.
    assert f'<base href="{BASE}/">' in (sample / "404.html").read_text(encoding="utf-8")
    assert (sample / "files" / "LICENSE").is_file()


def test_released_versions_stay_beside_the_newest_site(sample, tmp_path):
    def put(*version):
        command = [sys.executable, str(SITE / "publish.py"), str(sample), str(tmp_path), *version]
        subprocess.run(command, check=True)

    put("--version", "2026.12.1")
    (tmp_path / "old.html").touch()
    put()
    assert not (tmp_path / "old.html").exists()
    assert (tmp_path / "index.html").is_file()
    assert (tmp_path / ".nojekyll").is_file()
    assert (tmp_path / "2026.12.1" / "rules" / "MASK-6.html").is_file()


NAMES = ("000", "001", "002", "003", "004", "merging")


@pytest.fixture(scope="module")
def made():
    sys.path.append(str(SITE))
    from notebooks import notebooks

    return notebooks(Path(SITE).parent)


def run(cell, scope):
    """Run a cell as Jupyter does: the value of its last expression is shown."""
    tree = ast.parse(cell["source"])
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), scope)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), scope) if last else None


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_from_its_first_cell_to_its_last(made, name):
    scope = {}
    cells = made[name]["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 4
    assert len({cell["id"] for cell in cells}) == len(cells)
    for cell in code:
        if not cell["outputs"]:
            run(cell, scope)
        elif cell["outputs"][0]["output_type"] == "error":
            with pytest.raises(Exception, match=r"\[[A-Z]+-\d+\]") as raised:
                run(cell, scope)
            assert raised.type.__name__ == cell["outputs"][0]["ename"]
        else:
            assert repr(run(cell, scope)) == cell["outputs"][0]["data"]["text/plain"]


def test_the_site_has_the_notebooks(site, made):
    assert [*made] == [*NAMES]
    for name in NAMES:
        path = f"files/notebooks/{name}.ipynb"
        assert (site.folder / "html" / path).is_file()
        page = "recipes" if name == "merging" else "notebooks"
        assert f"page:../{path}" in site.page(f"spec/{page}")
