"""The simulation of the pure cores can fail: whatever part of a rule is broken, it is found within so many lives.

The rules are those of docs/replication.md. Each life in which one is found is a life that the honest cores get through.
"""

import pytest
from tests.replication import mutants
from tests.replication.cluster import run
from tests.replication.mutants import Mutant

OFTEN = 50
"""Lives within which most are found."""
SELDOM = 300
RARELY = 600


@pytest.mark.uncompiled
@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    ("mutant", "lives"),
    [
        (mutants.truncate_to_the_high_watermark, OFTEN),
        (mutants.cut_at_the_leaders_end_of_the_epoch_alone, OFTEN),
        (mutants.note_epochs_with_their_first_record, SELDOM),
        (mutants.compare_no_epochs, OFTEN),
        pytest.param(mutants.serve_followers_of_any_epoch, RARELY, marks=pytest.mark.slow),
        (mutants.take_late_answers, OFTEN),
        (mutants.ignore_the_minimum, SELDOM),
        (mutants.count_no_pending_additions, SELDOM),
        (mutants.count_pending_removals_as_done, SELDOM),
        (mutants.commit_what_the_leader_has, OFTEN),
        (mutants.tell_what_is_not_synced, SELDOM),
        (mutants.let_anybody_join, SELDOM),
        (mutants.let_leaders_decide, SELDOM),
        (mutants.compare_no_partition_epoch, SELDOM),
        (mutants.let_fenced_brokers_join, OFTEN),
        (mutants.lead_without_a_lease, SELDOM),
        (mutants.count_the_lease_from_the_answer, SELDOM),
        (mutants.end_leases_early, SELDOM),
        (mutants.keep_whoever_leaves_eligible, OFTEN),
        (mutants.elect_anybody, OFTEN),
        (mutants.tell_latest_at_once, OFTEN),
        (mutants.show_what_followers_have, OFTEN),
    ],
)
def test_a_broken_rule_is_found_within_its_lives(mutant: Mutant, lives: int) -> None:
    found_at = seed_that_finds(mutant, lives)
    assert found_at is not None, f"{lives} lives hide it"
    run(found_at)


@pytest.mark.uncompiled
def test_a_killed_process_that_stays_in_sync_is_found_where_nothing_is_synced() -> None:
    """With syncs the rule costs nothing and saves nothing: what counted for an ack is there after a kill."""
    found_at = seed_that_finds(mutants.believe_in_clean_shutdowns, OFTEN, synced=False)
    assert found_at is not None
    run(found_at, synced=False)


@pytest.mark.uncompiled
def test_an_older_copy_that_leads_is_found() -> None:
    found_at = seed_that_finds(mutants.let_the_last_one_lead_on, OFTEN, older_copies=True)
    assert found_at is not None
    run(found_at, older_copies=True)


def seed_that_finds(mutant: Mutant, lives: int, *, synced: bool = True, older_copies: bool = False) -> int | None:
    """The first life that a broken rule does not get through; None where it gets through all."""
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        for seed in range(lives):
            try:
                run(seed, synced=synced, older_copies=older_copies)
            except AssertionError:
                return seed
    return None
