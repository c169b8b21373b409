"""Long work tells what it is at, and short work nothing."""

import threading

import pytest
from tests.support.waiting import WAIT_S, until

from logboom.cli.progress import ProgressLine


def test_long_work_says_what_it_is_at(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []

    def has_said(text: str) -> bool:
        said.append(capsys.readouterr().err)
        return text in "".join(said)

    with ProgressLine("reading", first_s=0.01, again_s=0.01) as progress:
        until(lambda: has_said("reading ("), "it says what it is at")
        items = progress.counted("counting", range(2_500))
        assert sum(1 for _ in items) == 2_500
        until(lambda: has_said("counting: 2,000 ("), "and how far it is")
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressLine("reading", first_s=WAIT_S):
        pass
    assert capsys.readouterr() == ("", "")
