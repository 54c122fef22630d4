"""Every page in a real browser: nothing is asked for, nothing complains, all can be read, and paper cuts nothing.

Skipped where there is no Chromium (``scripts/browser`` installs it); playwright and axe-core come with the extra ``dev``.
"""

from __future__ import annotations

from importlib.resources import files

import pytest
from benchmarks.pages import SAMPLES, browser, browser_path, folder_of_samples, write_page

SIZES = {"phone": (390, 800), "desk": (1280, 900)}
SMALLEST = 9.5
"""Pixels of the smallest letters of a chart; in one that can be magnified, as it is at first, a little smaller."""
SMALLEST_ZOOMED = 6.5
LARGEST_BYTES = 2_000_000
PAPER = 690
"""Pixels of an A4 page between its margins."""
SERIOUS = {"serious", "critical"}
SECONDS = 1.0

MEASURED = """() => {
  const seen = (node) => node.getClientRects().length > 0;
  const rgb = (words) => (words.match(/[\\d.]+/g) || []).map(Number);
  const light = (c) => c.slice(0, 3).map((x) => x / 255).map((x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
    .reduce((sum, x, at) => sum + x * [0.2126, 0.7152, 0.0722][at], 0);
  const ratio = ([low, high]) => (high + 0.05) / (low + 0.05);
  const contrast = (a, b) => ratio([light(a), light(b)].sort((x, y) => x - y));
  const paper = rgb(getComputedStyle(document.body).backgroundColor);
  const texts = [...document.querySelectorAll('svg text')].filter(seen).filter((node) => node.textContent.trim());
  const size = (node) => parseFloat(getComputedStyle(node).fontSize) * node.ownerSVGElement.getScreenCTM().a;
  const of = (zoomed) => texts.filter((node) => Boolean(node.closest('.zoomable')) === zoomed);
  const inside = (node) => {
    const frame = node.ownerSVGElement.getBoundingClientRect(), box = node.getBoundingClientRect();
    return box.left >= frame.left - 2 && box.right <= frame.right + 2 && box.top >= frame.top - 2
      && box.bottom <= frame.bottom + 2;
  };
  const plain = of(false);
  return {
    width: document.documentElement.scrollWidth, window: innerWidth, charts: document.querySelectorAll('svg').length,
    smallest: Math.min(99, ...plain.map(size)), zoomed: Math.min(99, ...of(true).map(size)),
    pale: plain.filter((node) => contrast(rgb(getComputedStyle(node).fill), paper) < 4.5).map((node) => node.textContent)
      .slice(0, 5),
    outside: plain.filter((node) => !inside(node)).map((node) => node.textContent).slice(0, 5),
    fixed: [...document.querySelectorAll('main p, main li, main h1, main h2')].filter(seen)
      .filter((node) => node.scrollWidth > node.clientWidth + 1).map((node) => node.textContent.slice(0, 60)).slice(0, 5),
  };
}"""
CUT = """() => [...document.querySelectorAll('table, pre, svg')].filter((node) => node.getClientRects().length > 0)
  .filter((node) => node.getBoundingClientRect().right > innerWidth + 1 || node.scrollWidth > node.clientWidth + 2)
  .map((node) => node.tagName + ' ' + node.textContent.trim().slice(0, 60)).slice(0, 5)"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """All samples as ``--html`` writes them."""
    if browser_path() is None:
        pytest.skip("no browser: no Chromium on the path, and MESHWRIGHT_CHROMIUM names none (scripts/browser)")
    pytest.importorskip("playwright", reason="playwright is not installed (extra dev)")
    out = tmp_path_factory.mktemp("pages")
    with folder_of_samples() as folder:
        for name in SAMPLES:
            write_page(name, folder, out / f"{name}.html")
    return out


@pytest.fixture(scope="module")
def opened(pages):
    """One browser for all."""
    with browser() as found:
        yield found


@pytest.fixture
def view(opened):
    """A window; what it asks for and complains of."""
    found = opened.new_page()
    found.asked, found.complaints = [], []
    found.on("request", lambda request: found.asked.append(request.url))
    found.on("console", lambda message: found.complaints.append(message.text))
    found.on("pageerror", lambda error: found.complaints.append(str(error)))
    yield found
    found.close()


@pytest.mark.parametrize("name", SAMPLES)
def test_a_page_can_be_read_on_a_desk_and_on_a_phone_by_day_and_by_night(name, pages, view):
    path = pages / f"{name}.html"
    assert path.stat().st_size < LARGEST_BYTES
    view.goto(path.as_uri())
    opening_s = view.evaluate("performance.getEntriesByType('navigation')[0].domComplete") / 1000.0
    assert opening_s < 5 * SECONDS, "a page opens in under a second; a machine busy with tests has five"
    assert view.title().endswith(f"Meshwright {RENAMED.get(name, name)}")
    for size, (width, height) in SIZES.items():
        view.set_viewport_size({"width": width, "height": height})
        for scheme in ("light", "dark"):
            view.emulate_media(color_scheme=scheme)
            found = view.evaluate(MEASURED)
            where = f"{name}, {size}, {scheme}: {found}"
            assert found["width"] <= found["window"], f"wider than the window: {where}"
            assert found["smallest"] >= SMALLEST and found["zoomed"] >= SMALLEST_ZOOMED, f"letters too small: {where}"
            assert not found["pale"], f"letters too pale: {where}"
            assert not found["outside"], f"letters outside their chart: {where}"
            assert not found["fixed"], f"lines that are cut: {where}"
    assert [url for url in view.asked if url != path.as_uri()] == []
    assert view.complaints == []


RENAMED = {"nothing": "plan", "trials": "tune"}


@pytest.mark.parametrize("name", SAMPLES)
def test_paper_cuts_nothing(name, pages, view):
    view.set_viewport_size({"width": PAPER, "height": 1000})
    view.goto((pages / f"{name}.html").as_uri())
    view.emulate_media(media="print", color_scheme="dark")
    view.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert view.evaluate("[...document.querySelectorAll('details')].every((part) => part.open)")
    assert view.evaluate(CUT) == []
    assert view.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", "paper is white by night, too"


def test_a_page_prints(pages, view):
    view.goto((pages / "plan.html").as_uri())
    printed = view.pdf(format="A4", prefer_css_page_size=True)
    assert printed.startswith(b"%PDF-") and printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ") > 2


@pytest.mark.parametrize("name", SAMPLES)
def test_nobody_is_shut_out(name, pages, view):
    pytest.importorskip("axe_playwright_python", reason="axe-core is not installed (extra dev)")
    view.goto((pages / f"{name}.html").as_uri())
    view.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true })")
    view.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    for scheme in ("light", "dark"):
        view.emulate_media(color_scheme=scheme)
        found = view.evaluate("axe.run({resultTypes: ['violations']})")
        serious = [(each["id"], each["nodes"][0]["html"][:200]) for each in found["violations"] if each["impact"] in SERIOUS]
        assert serious == [], f"{name}, {scheme}"


def test_the_keyboard_reaches_everything(pages, view):
    view.goto((pages / "plan.html").as_uri())
    view.keyboard.press("Tab")
    assert view.evaluate("document.activeElement.className") == "skip"
    view.keyboard.press("Tab")
    assert view.evaluate("document.activeElement.id") == "theme"
    view.keyboard.press("Enter")
    assert view.evaluate("document.documentElement.dataset.theme") == "dark"
    assert view.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)"
    chart = view.locator(".zoomable")
    chart.focus()
    before = view.evaluate("document.querySelector('.zoomable svg').getBoundingClientRect().width")
    view.keyboard.press("+")
    assert view.evaluate("document.querySelector('.zoomable svg').getBoundingClientRect().width") > 1.9 * before
    view.keyboard.press("0")
    assert view.evaluate("document.querySelector('.zoomable svg').getBoundingClientRect().width") == pytest.approx(before)
