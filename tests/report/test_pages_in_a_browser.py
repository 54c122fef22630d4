"""Every page in a real browser: nothing is asked for, nothing complains, all can be read, and paper cuts nothing.

Skipped where there is no Chromium (``scripts/browser`` installs it); playwright and axe-core come with the extra ``dev``.
"""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from benchmarks.pages import SAMPLES, browser, browser_path, folder_of_samples, write_page
from tests.draws import one_of
from tests.report.atlas_samples import wide_atlas

from meshwright.report.atlas import lacking, mfu_word
from meshwright.report.pages import page_html

SIZES = {"phone": (390, 800), "desk": (1280, 900)}
SMALLEST = 9.5
"""Pixels of the smallest letters of a chart; in one that can be magnified, as it is at first, a little smaller."""
SMALLEST_ZOOMED = 6.5
LARGEST_BYTES = 2_000_000
PAPER = 690
"""Pixels of an A4 page between its margins."""
SERIOUS = {"serious", "critical"}
OPENING_S = 1.0

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
  const covers = (box, at) => box.left <= at.left + 1 && box.right >= at.right - 1 && box.top <= at.top + 3
    && box.bottom >= at.bottom - 3;
  const ground = (node) => {
    const at = node.getBoundingClientRect();
    for (let under = node.previousElementSibling; under; under = under.previousElementSibling) {
      if (under.tagName === 'rect' && !under.hasAttribute('opacity') && covers(under.getBoundingClientRect(), at)) {
        return rgb(getComputedStyle(under).fill);
      }
    }
    return paper;
  };
  const boxes = plain.map((node) => [node, node.getBoundingClientRect()]);
  const cross = (a, b) => a.left < b.right - 2 && b.left < a.right - 2 && a.top < b.bottom - 4 && b.top < a.bottom - 4;
  const overlap = boxes.flatMap(([one, a], at) => boxes.slice(at + 1)
    .filter(([two, b]) => one.ownerSVGElement === two.ownerSVGElement && cross(a, b))
    .map(([two]) => `${one.textContent} / ${two.textContent}`));
  return {
    overlap: overlap.slice(0, 5),
    width: document.documentElement.scrollWidth, window: innerWidth, charts: document.querySelectorAll('svg').length,
    smallest: Math.min(99, ...plain.map(size)), zoomed: Math.min(99, ...of(true).map(size)),
    pale: plain.filter((node) => contrast(rgb(getComputedStyle(node).fill), ground(node)) < 4.5).map((node) => node.textContent)
      .slice(0, 5),
    outside: plain.filter((node) => !inside(node)).map((node) => node.textContent).slice(0, 5),
    fixed: [...document.querySelectorAll('main p, main li, main h1, main h2')].filter(seen)
      .filter((node) => node.scrollWidth > node.clientWidth + 1).map((node) => node.textContent.slice(0, 60)).slice(0, 5),
  };
}"""
SCROLLING = """() => [...document.querySelectorAll('main figure, main .chart, main .zoomable')]
  .filter((node) => node.getClientRects().length).filter((node) => node.scrollWidth > node.clientWidth + 1)
  .map((node) => node.className)"""
CUT = """() => [...document.querySelectorAll('table, pre, svg')].filter((node) => node.getClientRects().length > 0)
  .filter((node) => node.getBoundingClientRect().right > innerWidth + 1 || node.scrollWidth > node.clientWidth + 2)
  .map((node) => node.tagName + ' ' + node.textContent.trim().slice(0, 60)).slice(0, 5)"""


RENAMED = {"nothing": "plan", "trials": "tune"}


@pytest.fixture(scope="module")
def opened():
    """One browser for all."""
    if browser_path() is None:
        pytest.skip("no browser: no Chromium on the path, and MESHWRIGHT_CHROMIUM names none (scripts/browser)")
    pytest.importorskip("playwright", reason="playwright is not installed (extra dev)")
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


@pytest.fixture
def page_of(tmp_path):
    """The file of a sample, as ``--html`` writes it."""

    def made(name):
        with folder_of_samples() as folder:
            write_page(name, folder, tmp_path / f"{name}.html")
        return tmp_path / f"{name}.html"

    return made


@pytest.mark.parametrize("name", one_of(2, SAMPLES))
def test_everybody_can_read_a_page_anywhere(name, page_of, view):
    """On a desk and on a phone, by day and by night, with a reader of screens, and on paper; it asks for nothing."""
    path = page_of(name)
    assert path.stat().st_size < LARGEST_BYTES
    clock = view.context.new_cdp_session(view)
    clock.send("Performance.enable", {"timeDomain": "threadTicks"})
    view.goto(path.as_uri())
    spent = {each["name"]: each["value"] for each in clock.send("Performance.getMetrics")["metrics"]}
    assert spent["TaskDuration"] < OPENING_S, "seconds of a processor until a page is there"
    assert view.title().endswith(f"Meshwright {RENAMED.get(name, name)}")
    for size, (width, height) in SIZES.items():
        view.set_viewport_size({"width": width, "height": height})
        for scheme in ("light", "dark"):
            view.emulate_media(color_scheme=scheme)
            _is_readable(view.evaluate(MEASURED), f"{name}, {size}, {scheme}")
    _shuts_nobody_out(view)
    _is_whole_on_paper(view)
    assert [url for url in view.asked if url != path.as_uri()] == []
    assert view.complaints == []


def _is_readable(found, where):
    assert found["width"] <= found["window"], f"wider than the window: {where}: {found}"
    assert found["smallest"] >= SMALLEST and found["zoomed"] >= SMALLEST_ZOOMED, f"letters too small: {where}: {found}"
    assert not found["pale"], f"letters too pale: {where}: {found}"
    assert not found["overlap"], f"letters on top of others: {where}: {found}"
    assert not found["outside"], f"letters outside their chart: {where}: {found}"
    assert not found["fixed"], f"lines that are cut: {where}: {found}"


def _shuts_nobody_out(view):
    """axe-core finds nothing serious, whatever is unfolded."""
    pytest.importorskip("axe_playwright_python", reason="axe-core is not installed (extra dev)")
    view.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true })")
    view.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    for scheme, asked in (("light", ""), ("dark", ", runOnly: ['color-contrast']")):  # by night the colours alone differ
        view.emulate_media(color_scheme=scheme)
        found = view.evaluate(f"axe.run({{resultTypes: ['violations']{asked}}})")
        assert found["passes"], "something was looked at"
        serious = [(each["id"], each["nodes"][0]["html"][:200]) for each in found["violations"] if each["impact"] in SERIOUS]
        assert serious == [], scheme


def _is_whole_on_paper(view):
    view.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = false })")
    view.set_viewport_size({"width": PAPER, "height": 1000})
    view.emulate_media(media="print", color_scheme="dark")
    view.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert view.evaluate("[...document.querySelectorAll('details')].every((part) => part.open)"), "paper has what is folded"
    assert view.evaluate(CUT) == []
    assert view.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", "paper is white by night, too"


def test_a_page_prints(page_of, view):
    view.goto(page_of("estimate").as_uri())
    printed = view.pdf(format="A4", prefer_css_page_size=True)
    assert printed.startswith(b"%PDF-") and len(re.findall(rb"/Type\s*/Page\b", printed)) > 2


def test_the_keyboard_reaches_everything(page_of, view):
    view.goto(page_of("estimate").as_uri())
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


@pytest.mark.parametrize(("name", "key", "said"), [
    ("estimate", "ArrowRight", "stage 0: parameters"), ("atlas", "End", "on 64 devices"), ("pack", "ArrowDown", "tokens"),
])
def test_charts_say_their_values_to_a_keyboard_and_to_a_pointer(name, key, said, page_of, view):
    """One stop a chart; arrow keys go from value to value, each shown and spoken; a pointer shows what it is near."""
    view.set_viewport_size({"width": 1280, "height": 900})
    view.goto(page_of(name).as_uri())
    chart = view.locator(".chart.wide").first
    assert view.evaluate("document.getElementById('tip').hidden")
    chart.focus()
    view.keyboard.press(key)
    tip, heard = (view.evaluate(f"document.querySelector('{one}').textContent") for one in ("#tip", ".heard"))
    assert said in tip and heard == tip
    assert not view.evaluate("document.getElementById('tip').hidden")
    box = view.evaluate("(() => { const box = document.getElementById('tip').getBoundingClientRect(); "
                        "return [box.left, box.right, box.top] })()")
    assert box[0] >= 0 and box[1] <= 1280 and box[2] >= 0
    view.keyboard.press("Escape")
    assert view.evaluate("document.getElementById('tip').hidden")
    view.evaluate("document.activeElement.blur()")
    chart.scroll_into_view_if_needed()
    at = chart.evaluate("""(chart) => {
      const mark = chart.querySelector('[data-v]'), box = mark.getBoundingClientRect(), to = mark.getScreenCTM();
      if (mark.tagName !== 'path') { return [box.left + box.width / 2, box.top + box.height / 2]; }
      const [x, y] = mark.getAttribute('d').match(/[\\d.]+/g).map(Number);
      return [to.e + to.a * x, to.f + to.d * y];
    }""")
    view.mouse.move(*at)
    assert view.evaluate("document.getElementById('tip').textContent")
    assert not view.evaluate("document.getElementById('tip').hidden")
    view.emulate_media(media="print")
    assert view.evaluate("getComputedStyle(document.getElementById('tip')).display") == "none"
    assert view.complaints == []


def test_an_operation_of_the_pipeline_says_its_time(page_of, view):
    """Of thousands of operations in one path the one that is pointed at is found."""
    view.set_viewport_size({"width": 1280, "height": 900})
    view.goto(page_of("balance").as_uri())
    chart = view.locator(".zoomable").first
    chart.focus()
    view.keyboard.press("Shift+End")
    last = view.evaluate("document.getElementById('tip').textContent")
    assert re.match(r"stage \d+: ", last), last
    found = view.evaluate("""() => [...document.querySelectorAll('.zoomable path[data-v]')]
      .map((path) => [path.dataset.v.split('\\n').length, path.getAttribute('d').split('M').length - 1])""")
    assert found and all(said in (1, drawn) for said, drawn in found), "a value for each mark"


def test_rows_become_cards_on_a_phone(page_of, view):
    """A wide table shows every figure without scrolling on a phone, each beside the name of its column, and stays a table."""
    view.set_viewport_size({"width": 390, "height": 800})
    view.goto(page_of("plan").as_uri())
    table = view.locator("table.cards").first
    assert table.evaluate("(node) => node.scrollWidth <= node.parentElement.clientWidth + 1")
    row = table.locator("tbody tr").first
    named = row.evaluate("(node) => [...node.querySelectorAll('td')].map((one) => getComputedStyle(one, '::before').content)")
    assert any("MFU" in each for each in named) and any("expected" in each for each in named)
    assert table.get_attribute("role") == "table" and row.get_attribute("role") == "row"


def test_a_wide_atlas_is_a_list_on_a_phone(tmp_path, view):
    """Every cell is read on a phone without scrolling sideways, in words of their full size, and on a desk it is a map."""
    path = tmp_path / "wide.html"
    path.write_text(page_html(wide_atlas()), encoding="utf-8")
    view.goto(path.as_uri())
    for size, (width, height) in SIZES.items():
        view.set_viewport_size({"width": width, "height": height})
        for scheme in ("light", "dark"):
            view.emulate_media(color_scheme=scheme)
            _is_readable(view.evaluate(MEASURED), f"{size}, {scheme}")
    view.set_viewport_size({"width": 390, "height": 800})
    assert view.evaluate(SCROLLING) == [], "nothing is wider than its place"
    texts = view.evaluate("[...document.querySelectorAll('svg text')].filter((node) => node.getClientRects().length)"
                          ".map((node) => node.textContent)")
    for each in wide_atlas().to_json()["cells"]:
        assert mfu_word(each) in texts or f"lacks {lacking(each)}" in texts
    assert any("DP128 TP16" in each for each in texts)
    view.set_viewport_size({"width": 1280, "height": 900})
    assert view.locator(".zoomable").first.is_visible() and not view.locator(".chart.narrow").first.is_visible()
    _shuts_nobody_out(view)
    _is_whole_on_paper(view)
    assert view.complaints == []
