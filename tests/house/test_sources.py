"""What the tests read of sources is what stands there, whatever else goes on in the interpreter."""

import gc
import traceback
from pathlib import Path

from tests.support.sources import functions_of, tree_of

HERE = Path(__file__)


class _TellsOfItsEnd:
    """Is garbage that a collection alone finds, and formats a traceback then, as an object that was not closed does."""

    told: list[str] = []  # noqa: RUF012 - of all of them

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        try:
            raise ResourceWarning("not closed")
        except ResourceWarning:
            self.told.append(traceback.format_exc())


def test_what_ends_while_a_source_is_parsed_does_no_harm(tmp_path: Path) -> None:
    source = tmp_path / "long.py"
    source.write_text("value = (1, [2, 3])\n" * 1_000)  # makes so many objects that collections would begin meanwhile
    for _ in range(20):
        _TellsOfItsEnd()
        assert len(tree_of(source).body) == 1_000
    gc.collect()
    assert len(_TellsOfItsEnd.told) == 20
    assert gc.isenabled()


def test_functions_and_methods_are_found_by_name() -> None:
    assert {"test_functions_and_methods_are_found_by_name", "__del__"} <= functions_of(HERE)
