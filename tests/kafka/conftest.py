"""What the tests of this room share."""

from typing import Any

import pytest


@pytest.fixture
def warnings_logged(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The lines that the doors of this test log."""
    lines: list[dict[str, Any]] = []

    class Log:
        def warning(self, event: str, **fields: Any) -> None:
            lines.append({"event": event, **fields})

        error = warning

    monkeypatch.setattr("structlog.get_logger", lambda *names: Log())
    return lines
