"""Tests that need what is not on every machine are skipped without it."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def skipped_on(missing: type[Exception]) -> Iterator[None]:
    """Where the block raises this, the test is skipped with its text, which says what is missing and how to get it."""
    try:
        yield
    except missing as reason:
        pytest.skip(str(reason))
