"""The site builds from a clone: a page of each kind, by Sphinx, with every link checked."""

import subprocess
import sys

import pytest
from built_site import SITE, stored

pytestmark = pytest.mark.skipif(not SITE.is_dir(), reason="the site is not shipped")


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """The pages of a sample, with results of a few backends."""
    pytest.importorskip("furo")
    folder = tmp_path_factory.mktemp("sample")
    (folder / "results").mkdir()
    list(stored(folder / "results"))
    command = [sys.executable, str(SITE / "build.py"), "--sample", "--out", str(folder)]
    done = subprocess.run(
        [*command, "--results", str(folder / "results")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 problems" in done.stdout
    return folder / "html"


def test_a_sample_of_the_site_builds_and_its_links_lead_somewhere(sample):
    text = (sample / "rules" / "MASK-6.html").read_text(encoding="utf-8")
    assert "A row with nothing to attend to gives zero" in text
    assert (sample / "results" / "torch-sdpa.html").is_file()
