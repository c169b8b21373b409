"""Generated pages are what their generators would write now."""

from pathlib import Path

from logboom.cli.config import page

ROOT = Path(__file__).parents[2]


def test_configuration_page_is_current() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == page(), "run `make docs`"
