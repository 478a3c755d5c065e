"""The notebooks of the site run, and show what they hold as output."""

import ast
import sys
from pathlib import Path

import pytest
from built_site import SITE

pytestmark = pytest.mark.skipif(not SITE.is_dir(), reason="the site is not shipped")
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
