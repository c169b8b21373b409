"""Fixtures of the tests of the broker."""

import pytest
from tests.broker import node


@pytest.fixture(params=[False, True], ids=["thread", "inline"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run a test with all writes on the flusher's thread, and with small ones on the loop."""
    monkeypatch.setattr(node, "INLINE_FLUSH", request.param)
    inline: bool = request.param
    return inline
