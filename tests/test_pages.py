"""Pages and sources name what is there: paths, links, sections, functions."""

import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import meshwright as mw

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "meshwright"
SHELVES = (ROOT, ROOT / "docs", ROOT / "examples", PACKAGE / "evidence" / "data")
PAGES = sorted(path for shelf in SHELVES for path in shelf.glob("*.md"))
SOURCES = [path for path in sorted(PACKAGE.rglob("*")) if path.suffix in {".py", ".yaml", ".md", ".j2"}]
FOLDERS = ("benchmarks", "docs", "examples", "scripts", "src", "tests")
OURS = "|".join([*FOLDERS, "meshwright", *sorted(path.name for path in PACKAGE.iterdir() if path.is_dir())])
GONE = re.compile(r"(?<![\w./-])(?:reference|shared|corpus|seeds)/|\bMISSION\b|\bplan/(?=\w+\.py)|\bcontract\.md")
PATH = re.compile(rf"(?<![\w./<{{-])(?:{OURS})/[\w./*-]*[\w*]\.(?:py|md|yaml|csv|json|toml|svg|sh|log|txt)\b(?:#[\w-]+)?")
OF_OTHERS = {
    "benchmarks/llama3_h100_202412_torchtitan.md": "torchtitan",
    "docs/PHYSICS.md": "zhebrak",
    "docs/performance-summary.md": "Megatron-Bridge",
    "examples/moe_recipes/README.md": "Megatron-LM",
    "docs/en/mindspore/install_guide.md": "MindSpeed-LLM",
    "docs/source_zh_cn/usage/pretrain_gpt.md": "MindSpeed-Core-MS",
    "scripts/base_env.sh": "ChatLearn",
    "scripts/pissa_init.py": "LLaMA-Factory",
    "scripts/train/benchmarking/README.md": "llm-foundry",
    "scripts/train/yamls/pretrain/mpt-*.yaml": "llm-foundry",
    "scripts/training/run_recipe.py": "Megatron-Bridge",
    "examples/sc21/run_table_1.sh": "Megatron-LM",
    "src/megatron/bridge/training/config.py": "Megatron-Bridge",
}
"""Paths of other projects that begin like ours; the project stands beside each where it is cited."""
TICKED = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w.-]*(?:/[\w.-]+)*/?[\w.-]+\.(?:py|yaml|csv|toml|md)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
DOTTED = re.compile(r"``((?:\w+\.)+\w+)``")
ROOMS = {path.stem for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"}


@cache
def sections(path: Path) -> frozenset[str]:
    """The anchors of a page, as a forge makes them of its headings."""
    heads = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads)


def there(path: str, *, beside: Path) -> bool:
    """Whether a path leads somewhere from the root, the package or its page; an anchor is a section there."""
    name, _, anchor = path.partition("#")
    found = [place / name for place in (ROOT, PACKAGE, PACKAGE.parent, beside) if list(place.glob(name))]
    return bool(found) and (not anchor or anchor in sections(found[0]))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page):
    links = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    lost = [link for link in links if link.startswith("#") and link[1:] not in sections(page)]
    lost += [link for link in links if not link.startswith("#") and not there(link, beside=page.parent)]
    assert not lost


def test_the_index_has_every_page():
    index = LINK.findall((ROOT / "docs" / "README.md").read_text(encoding="utf-8"))
    assert not {page.name for page in (ROOT / "docs").glob("*.md")} - {*index, "README.md"}


@cache
def names() -> frozenset[str]:
    """Names of all files of the repository."""
    inside = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*")}
    return frozenset(inside | {path.name for path in ROOT.iterdir()})


USERS = {
    "FILE.csv", "FILE.yaml", "OUT.csv", "config.yaml", "mine.yaml", "my-run/plan.yaml", "my-runs.csv", "my.yaml", "plan.yaml",
    "predicted.csv", "init_demo.yaml",
}
"""Files of users in examples."""


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page):
    """Also rooms that were renamed. The page of sources names files of others: there only what begins like ours counts."""
    text = page.read_text(encoding="utf-8")
    named = {word for ticked in TICKED.findall(text) for word in ticked.split() if FILE.fullmatch(word)} - USERS
    if page.name == "sources.md":
        named = {word for word in named if PATH.fullmatch(word)} - set(OF_OTHERS)
    assert not [word for word in sorted(named) if not (there(word, beside=page.parent) if "/" in word else word in names())]
    assert not GONE.findall(text)


def test_sources_cite_nothing_outside_the_repository():
    lost = []
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        lost += [f"{path.name}: {found}" for found in GONE.findall(text)]
        for found in PATH.findall(text):
            if found in OF_OTHERS:
                assert OF_OTHERS[found].lower() in text.lower(), found
            elif not there(found, beside=path.parent):
                lost.append(f"{path.name}: {found}")
    assert not lost


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md"])
def test_the_map_of_a_page_has_every_room(page):
    blocks = re.findall(r"^```\w*\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert min((sorted(folders - set(re.findall(r"\w+", block))) for block in blocks), key=len) == []


def test_every_section_of_the_sources_is_cited():
    tests = [path for path in (ROOT / "tests").rglob("*") if path.suffix in {".py", ".toml"}]
    texts = (path.read_text(encoding="utf-8") for path in [*SOURCES, *tests])
    cited = {anchor for text in texts for anchor in re.findall(r"docs/sources\.md#([\w-]+)", text)}
    assert sections(ROOT / "docs" / "sources.md") - cited <= {"sources", "names", "pipeline"}


def test_functions_that_docstrings_name_are_there():
    """``room.module.name``: what stands in double ticks and begins with a room of the package."""
    rooms = ROOMS if find_spec("torch") else ROOMS - {"engine"}
    lost = []
    for path in SOURCES:
        for dotted in DOTTED.findall(path.read_text(encoding="utf-8")) if path.suffix == ".py" else ():
            first, *rest = dotted.split(".")
            if first in rooms and not resolves(["meshwright", first, *rest]):
                lost.append(f"{path.relative_to(PACKAGE)}: {dotted}")
    assert not lost


def resolves(parts: list[str]) -> bool:
    """Whether dotted words are a module, or lead through attributes of one."""
    for length in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            found = getattr(found, name, None) or getattr(found, "__dataclass_fields__", {}).get(name)
        return found is not None
    return False


def test_the_keys_that_are_promised_are_there():
    page = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    request = mw.PlanRequest(model="llama3-8b", device="h100-sxm", nodes=1, global_batch=128, sequence=8192, top=1)
    document = mw.plan(request).to_json()
    blocks = dict(zip(("plan", "layout", "estimate"), re.findall(r"```\n(.*?)```", page, re.DOTALL), strict=True))
    best = document["plans"][0]
    said = {"plan": document | best, "layout": best["layout"], "estimate": best["estimate"]}
    for name, block in blocks.items():
        promised = set(re.findall(r"[a-z_]+", re.sub(r"\{.*?\}", "", block)))
        assert promised <= set(said[name]), name


def test_every_class_of_incoherence_has_tests_that_are_there():
    rows = [line for line in (ROOT / "docs" / "coherence-classes.md").read_text().splitlines() if line.startswith("| ")][2:]
    named = [re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row) for row in rows]
    assert len(rows) > 30 and all(named)
    for path, name in {each for row in named for each in row}:
        assert f"def {name}(" in (ROOT / path).read_text(), (path, name)
