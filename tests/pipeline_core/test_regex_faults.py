"""What is wrong with a regular expression of a condition, where the JVM that compiles it has ended."""

from typing import Any, cast

import pytest
from py4j.protocol import Py4JNetworkError

from logboom.pipeline.sql.regex import regex_fault
from logboom.pipeline.sql.tree import Tree


class _EndedJvm:
    """A tree of a JVM that has ended; the pattern is known already."""

    def text(self, node: object) -> str:
        return "a+"

    def static(self, java_class: str, name: str) -> Any:
        raise Py4JNetworkError("Answer from Java side is empty")


def test_the_end_of_the_jvm_is_not_reported_as_an_error_of_the_pattern() -> None:
    with pytest.raises(Py4JNetworkError):
        regex_fault(cast("Tree", _EndedJvm()), "rlike", None, [None, None])
