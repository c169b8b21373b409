"""The generated reference of settings says the truth about any model."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from logboom.app.reference import Section, reference_page
from logboom.base.settings import Address, DurationMs, DurationS, Settings, SizeBytes


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Inner(Settings):
    """An inner group."""

    mode: Literal["fast", "safe"] = "safe"
    """How to go: fast | safe."""
    colour: Colour = Colour.RED
    names: tuple[str, ...] = ("a", "b")
    more: Address | None = None


class Outer(Settings):
    """An outer group."""

    path: Path
    """Where it lies,
    over two lines."""
    keep_ms: Annotated[DurationMs, Field(ge=1_000)] = 7 * 86_400_000
    wait_s: DurationS = 0.5
    room_bytes: SizeBytes = Field(default=2**20, le=2**30)
    on: bool = True
    inner: Inner = Inner()
    """What is inside."""


def test_page_tells_kind_bounds_default_and_purpose() -> None:
    page = reference_page("Title", "Words.", [Section("File", "What it is.", Outer)])
    assert page.splitlines() == [
        "# Title",
        "",
        "Words.",
        "",
        "## File",
        "",
        "What it is.",
        "",
        "| setting | value | default | what it does |",
        "|---|---|---|---|",
        "| `path` | path | required | Where it lies, over two lines. |",
        "| `keep_ms` | duration, at least 1s | `7d` |  |",
        "| `wait_s` | duration | `500ms` |  |",
        "| `room_bytes` | size, at most 1GiB | `1MiB` |  |",
        "| `on` | true or false | `true` |  |",
        "",
        "### `inner`",
        "",
        "What is inside.",
        "",
        "| setting | value | default | what it does |",
        "|---|---|---|---|",
        "| `inner.mode` | `fast` or `safe` | `safe` | How to go: fast \\| safe. |",
        "| `inner.colour` | `red` or `blue` | `red` |  |",
        "| `inner.names` | list: text | `a, b` |  |",
        "| `inner.more` | address or null | `null` |  |",
    ]
