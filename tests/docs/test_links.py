"""Links between the pages lead to files and headings that exist, and the index of decisions lists each record."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECISIONS = ROOT / "docs" / "decisions"
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "src/**/*.md", "examples/**/*.md", "deploy/**/*.md")
    for page in ROOT.glob(pattern)
)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def title(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text_of(page: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchor(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")


def leads_somewhere(page: Path, link: str) -> bool:
    name, _, fragment = link.partition("#")
    target = page.parent / name if name else page
    if not target.exists() or not fragment or target.suffix != ".md":
        return target.exists()
    return fragment in {anchor(heading) for heading in _HEADING.findall(text_of(target))}


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = [link for link in _LINK.findall(text_of(page)) if "://" not in link]
    missing = [link for link in links if not leads_somewhere(page, link)]
    assert not missing, f"{title(page)} links to what does not exist: {missing}"


def test_the_index_of_decisions_lists_each_record() -> None:
    index = DECISIONS / "README.md"
    missing = {record.name for record in DECISIONS.glob("0*.md")} - set(_LINK.findall(text_of(index)))
    assert not missing, f"{title(index)} does not list {sorted(missing)}"
