"""The site builds from a clone: a page of each kind, by Sphinx, with every link checked."""

import re
import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest
from built_site import BASE, SITE

pytestmark = pytest.mark.skipif(not SITE.is_dir(), reason="the site is not shipped")


def test_a_sample_of_the_site_builds_and_its_links_lead_somewhere(sample):
    text = (sample / "rules" / "MASK-6.html").read_text(encoding="utf-8")
    assert "A row with nothing to attend to gives zero" in text
    assert (sample / "results" / "torch-sdpa.html").is_file()


def test_every_page_has_a_description_a_preview_an_icon_and_its_own_address(sample):
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


def test_the_files_for_a_host_are_there(sample):
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
