"""Writing to a table of a real broker: races, merges, lost answers."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.server import BrokerProcess, free_port
from tests.support.waiting import WAIT_S, until
from tests.table.proxy import CuttingProxy

from logboom.table import (
    ABSENT,
    DocumentError,
    Entry,
    Table,
    TableTimeoutError,
    UnknownOutcomeError,
    VersionConflictError,
    WriteRefusedError,
)

Opened = Callable[..., Table]


def together(*acts: Callable[[], None]) -> None:
    """Do things at the same time; what one of them raises is raised."""
    failed: list[BaseException] = []

    def run(act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001  # raised by the test's own thread
            failed.append(error)

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * WAIT_S)
        assert not thread.is_alive()
    if failed:
        raise failed[0]


def test_a_write_with_a_version_needs_that_version(opened: Opened) -> None:
    table = opened()
    first = table.put("k", b"1", expected=ABSENT)
    with pytest.raises(VersionConflictError, match="was to have no value, but it has version"):
        table.put("k", b"2", expected=ABSENT)
    second = table.put("k", b"2", expected=first.version)
    for act in (
        lambda: table.put("k", b"3", expected=first.version),
        lambda: table.delete("k", expected=first.version),
        lambda: table.put("k", b"3", expected=second.version + 100),
    ):
        with pytest.raises(VersionConflictError, match="another writer was first") as conflict:
            act()
        assert conflict.value.current == second
    assert table.delete("k", expected=second.version)
    with pytest.raises(VersionConflictError, match="there is none") as conflict:
        table.delete("k", expected=second.version)
    assert conflict.value.current is None
    assert table.put("k", b"4", expected=ABSENT).version > second.version
    with pytest.raises(ValueError, match="nothing to delete"):
        table.delete("k", expected=ABSENT)


def test_of_two_writers_that_know_the_same_version_one_wins(opened: Opened) -> None:
    """Views of one process each; what the loser is told is what the winner wrote."""
    tables = [opened(), opened()]
    wins = [0, 0]
    version = ABSENT
    for round_ in range(15):
        start = threading.Barrier(2)
        written: list[int] = []
        told: list[VersionConflictError] = []

        def write(number: int, expected: int = version, start: threading.Barrier = start) -> None:
            start.wait(WAIT_S)
            try:
                written.append(tables[number].put("k", b"%d %d" % (round_, number), expected=expected).version)  # noqa: B023
                wins[number] += 1
            except VersionConflictError as conflict:
                told.append(conflict)  # noqa: B023

        together(lambda: write(0), lambda: write(1))
        assert (len(written), len(told)) == (1, 1)
        assert told[0].current is not None
        assert told[0].current.version == written[0]
        version = written[0]
    assert sum(wins) == 15


def test_a_counter_of_several_writers_counts_each_once(opened: Opened) -> None:
    tables = [opened() for _ in range(4)]

    def count(table: Table) -> Callable[[], None]:
        def act() -> None:
            done = 0
            while done < 10:
                entry = table.get("n")
                value = int(entry.value) + 1 if entry else 1
                try:
                    table.put("n", b"%d" % value, expected=entry.version if entry else ABSENT)
                    done += 1
                except VersionConflictError:
                    continue

        return act

    together(*map(count, tables))
    entry = tables[0].get("n")
    assert entry is not None
    assert entry.value == b"40"


def test_merges_of_ten_writers_lose_none(opened: Opened) -> None:
    tables = [opened() for _ in range(3)]

    def merge(number: int) -> Callable[[], None]:
        def act() -> None:
            for step in range(4):
                tables[number % 3].merge(
                    "doc", {f"writer-{number}": {"step": step, f"s{step}": True}, "shared": number}
                )

        return act

    together(*map(merge, range(10)))
    entry = tables[0].get("doc")
    assert entry is not None
    document = entry.json()
    shared = document.pop("shared")
    assert shared in range(10)
    assert document == {f"writer-{n}": {"step": 3, "s0": True, "s1": True, "s2": True, "s3": True} for n in range(10)}


def test_merge_patches(opened: Opened) -> None:
    table = opened()
    assert table.merge("doc", {"gone": None}) is None, "there is nothing to remove, so nothing is written"
    first = table.merge("doc", {"limit": 5, "by": {"eu": 1, "us": 2}})
    assert first is not None
    assert table.merge("doc", {"limit": 5}) == first, "a merge that changes nothing writes nothing"
    second = table.merge("doc", {"by": {"us": None}, "name": "\N{SNOWMAN}"})
    assert second is not None
    assert second.json() == {"limit": 5, "by": {"eu": 1}, "name": "\N{SNOWMAN}"}
    table.put("text", b"no JSON")
    with pytest.raises(DocumentError, match="the value of key 'text' is not JSON"):
        table.merge("text", {"a": 1})
    table.put("list", b"[1]")
    assert (third := table.merge("list", {"a": 1})) is not None
    assert third.json() == {"a": 1}, "as RFC 7386 has it"
    with pytest.raises(DocumentError, match="cannot be written"):
        table.put_json("doc", {1, 2})


def test_what_the_broker_refuses_is_told_at_once(broker: BrokerProcess, stream: str, opened: Opened) -> None:
    table = opened()
    with pytest.raises(WriteRefusedError, match="MSG_SIZE_TOO_LARGE"):
        table.put("k", bytes(2_000_000))
    with pytest.raises(WriteRefusedError, match="MSG_SIZE_TOO_LARGE"):
        table.put("k", bytes(2_000_000), expected=ABSENT)
    assert table.put("k", bytes(900_000)).value == bytes(900_000)


def test_a_write_whose_answer_does_not_come_has_an_unknown_outcome(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, ExitStack() as stack:
        Table.create(broker.kafka, "t")
        patient = stack.enter_context(Table.open(broker.kafka, "t", timeout_s=WAIT_S))
        versions = [patient.put("k", b"1").version]

        def opened_in_time() -> Table | None:
            try:
                return Table.open(broker.kafka, "t", timeout_s=1.5)
            except TableTimeoutError:
                return None

        opened = until(opened_in_time, "a moment in which the machine is not too busy")
        assert opened is not None
        table = stack.enter_context(opened)

        def write_on() -> None:
            while True:
                versions.append(table.put("k", b"2").version)

        pause = threading.Timer(0.05, broker.pause)
        pause.start()
        try:
            with pytest.raises((UnknownOutcomeError, TableTimeoutError)):
                write_on()
        finally:
            pause.join()
            broker.resume()
        entry = patient.get("k")
        assert entry is not None
        assert entry.version >= versions[-1]
        late: list[Entry | None] = []
        try:
            patient.put("k", b"3", expected=entry.version)
        except VersionConflictError as conflict:  # "now or later", as it was told: the write came after the read
            late.append(conflict.current)
        assert [(each.value, each.version - entry.version) for each in late if each] in ([], [(b"2", 1)])


@pytest.mark.parametrize("expected", [None, ABSENT])
def test_a_write_whose_answer_was_lost_is_found_and_stored_once(tmp_path: Path, expected: int | None) -> None:
    """The connection breaks between the broker's append and its answer; what is sent again must not lose to itself."""
    port = free_port()
    advertised = ("--set", f"kafka.advertised=127.0.0.1:{port}")
    with BrokerProcess(tmp_path / "data", *advertised) as broker, CuttingProxy(port, broker.kafka) as proxy:
        address = f"127.0.0.1:{port}"
        Table.create(address, "t")
        with Table.open(address, "t", timeout_s=WAIT_S) as table:
            table.put("warm", b"", expected=None)
            table.put("warm", b"", expected=table.get("warm").version)  # type: ignore[union-attr]
            proxy.cut_next_produce_reply()
            entry = table.put("k", b"1", expected=expected)
            assert proxy.cut_replies == 1
            assert table.get("k") == entry
            assert table.put("k", b"2", expected=entry.version).version == entry.version + 1, "it is there once"
