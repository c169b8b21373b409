"""Lives of a cluster of the pure cores: nothing acked is lost, nothing read changes, and after healing all is whole."""

import pytest
from tests.replication.broker import BrokenPromiseError, Broker
from tests.replication.cluster import run


@pytest.mark.parametrize("first", range(0, 80, 20))
def test_whatever_happens_to_brokers_and_messages_every_acked_record_stays(first: int) -> None:
    committed = sum(len(run(seed).committed) for seed in range(first, first + 20))
    assert committed > 200, "hardly anything was written"


@pytest.mark.parametrize("first", [0, 20])
def test_one_process_at_a_time_may_lose_what_was_not_synced(first: int) -> None:
    """A stream that waits for no sync keeps what another member of the ISR has in memory (KIP-966)."""
    committed = sum(len(run(seed, synced=False).committed) for seed in range(first, first + 20))
    assert committed > 200, "hardly anything was written"


@pytest.mark.parametrize("first", [0, 15])
def test_one_disk_at_a_time_may_be_an_older_copy(first: int) -> None:
    """Also where all processes are killed at once: the logs of the others show what the copy lacks."""
    committed = sum(len(run(seed, older_copies=True).committed) for seed in range(first, first + 15))
    assert committed > 200, "hardly anything was written"


def test_the_same_seed_gives_the_same_life() -> None:
    once, again = run(7, steps=400), run(7, steps=400)
    assert (once.history, once.committed, once.now_s) == (again.history, again.committed, again.now_s)


def test_healing_that_does_not_come_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broker, "flush", lambda self: None)
    with pytest.raises(BrokenPromiseError, match="not whole"):
        run(3, steps=50)
