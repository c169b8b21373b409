"""Sinks that commit a batch as a whole, and what is noted behind requests: counted once, and its letters written once,
whatever fails when the batch is there already."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline_sinks.contracts import webhook
from tests.pipeline_sinks.harness import Letters, event, opened, rows, sink_of
from tests.pipeline_sinks.server import Server

from logboom.pipeline.sinks.base import Delivered, PartlyDeliveredError, Refused
from logboom.pipeline.sinks.bulk import writer as bulk_writer
from logboom.pipeline.sinks.bulk.progress import write_progress
from logboom.pipeline.sinks.file.appending import LineFiles
from logboom.pipeline.sinks.parquet.archive import Archive
from logboom.pipeline.sinks.repeats.batch_dead_letters import BatchLetters


class _Fails:
    """A method that fails so often, and then does its work."""

    def __init__(self, real: Any, times: int) -> None:
        self._real = real
        self._left = times

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self._left:
            self._left -= 1
            raise OSError(28, "No space left on device")
        return self._real(*arguments, **named)


def test_lines_that_are_committed_count_though_old_files_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = opened(sink_of("type: file, path: out.jsonl"), tmp_path, Letters())
    monkeypatch.setattr(LineFiles, "_remove_old", _Fails(None, 1))
    assert writer.deliver(rows([event(0)], [event(1)]), 0) == Delivered("out", 0, rows=2)
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2


def test_a_letter_is_written_once_though_its_batch_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = Letters()
    writer = opened(sink_of("type: file, path: out.jsonl"), tmp_path, letters)
    monkeypatch.setattr(LineFiles, "commit", _Fails(LineFiles.commit.__get__(writer._files), 2))  # type: ignore[attr-defined]
    batch = rows([event(0), b"no event"])
    with pytest.raises(PartlyDeliveredError, match="No space left") as first:
        writer.deliver(batch, 0)
    assert first.value.dead == 1
    with pytest.raises(OSError, match="No space left") as second:
        writer.deliver(batch, 0)
    assert second.value.__cause__ is None
    assert writer.deliver(batch, 0) == Delivered("out", 0, rows=1)
    assert [letter.value for letter in letters.refused] == [b"no event"]


def test_files_that_cannot_be_put_in_place_are_counted_when_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = opened(sink_of("type: parquet, path: ./lake"), tmp_path, Letters())
    archive = writer.archive  # type: ignore[attr-defined]
    monkeypatch.setattr(archive, "_put_in_place", _Fails(archive._put_in_place, 2))
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            writer.deliver(rows([event(0), event(1)]), 0)
    assert isinstance(archive, Archive)
    assert writer.left(rows([event(0), event(1)]), 0).parts == []
    assert writer.deliver(rows([event(2)]), 1) == Delivered("out", 1, rows=3)


def test_what_was_delivered_counts_though_it_cannot_be_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(webhook.Webhook()) as server:
        writer = opened(sink_of(webhook.KEYS.format(url=server.url)), tmp_path, Letters())
        noting = _Fails(write_progress, 1)
        monkeypatch.setattr(bulk_writer, "write_progress", noting)
        batch = rows([event(number) for number in range(20)])
        with pytest.raises(PartlyDeliveredError, match="cannot be recorded in the checkpoint") as failed:
            writer.deliver(batch, 0)
        assert failed.value.rows == 20
        assert writer.deliver(batch, 0) == Delivered("out", 0)
        assert server.contract.events == Counter({f"web:0:{number}": 1 for number in range(20)})
        assert writer.deliver(rows([event(3)]), 1).repeats == 1


def test_letters_of_another_batch_are_others() -> None:
    letters = Letters()
    own = BatchLetters(letters)
    refused = [Refused("_p.e", 0, offset, b"x", "no event") for offset in (3, 4)]
    for batch, written in ((0, 2), (0, 0), (1, 2)):
        own.begin(batch)
        assert own.write(refused) == written
    error = OSError("full")
    assert isinstance(own.failed(error), PartlyDeliveredError)
    own.begin(1)
    assert own.failed(error) is error
