"""Rules of replication, broken on purpose: each function takes one part of one rule out of the pure cores.

Nothing in the product can be asked to break a rule, so a function is put in another one's place, for one test.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as change_struct
from tests.replication import broker, cluster
from tests.replication.broker import LEASE_S, Broker, Record

from logboom.base.ids import NO_BROKER, BrokerEpoch, BrokerId, Epoch, Offset
from logboom.metadata import assignment, membership
from logboom.metadata import leadership as decisions
from logboom.metadata.assignment import Assignment
from logboom.metadata.brokers import Broker as Registered
from logboom.metadata.image import Image, Stream
from logboom.metadata.leadership import IsrProposal
from logboom.metadata.leases import BrokerLease, BrokerLeases
from logboom.metadata.membership import RegistrationRequest
from logboom.replication import following, leadership
from logboom.replication.following import PartitionFollowing
from logboom.replication.leadership import PartitionLeadership

Patch = pytest.MonkeyPatch
Mutant = Callable[[Patch], None]
Members = frozenset[BrokerId]
Led = tuple[leadership.Effect, ...]
Followed = tuple[following.Effect, ...]


# --- rule 1: truncation by epochs -----------------------------------------------------------------------------------


def truncate_to_the_high_watermark(patch: Patch) -> None:
    """What Kafka did before KIP-101."""
    follow = Broker._follow

    def first_truncates(self: Broker, now: Assignment, epoch: Epoch) -> None:
        if now.leader not in (NO_BROKER, self.id) and now.leader_epoch > self.follower.epoch:
            self.log.truncate(self.high_watermark)
        follow(self, now, epoch)

    patch.setattr(Broker, "_follow", first_truncates)


def cut_at_the_leaders_end_of_the_epoch_alone(patch: Patch) -> None:
    """KIP-101 without KIP-279: where the follower's own batches of that epoch end plays no part."""
    patch.setattr(following, "truncation_point", lambda _, end, diverging: min(end, diverging.end_offset))


def note_epochs_with_their_first_record(patch: Patch) -> None:
    """A leader that has written nothing yet does not know when its epoch began."""
    start = PartitionLeadership._start

    def without_epoch(self: PartitionLeadership, event: leadership.LeadershipStarted) -> Led:
        return tuple(one for one in start(self, event) if not isinstance(one, leadership.EpochStarted))

    patch.setattr(PartitionLeadership, "_start", without_epoch)


# --- rule 2: both sides compare epochs ------------------------------------------------------------------------------


def compare_no_epochs(patch: Patch) -> None:
    """The leader takes it that every follower's log is its own."""
    patch.setattr(broker, "divergence", lambda *_, **__: None)


def serve_followers_of_any_epoch(patch: Patch) -> None:
    """A leader does not refuse a follower that has not heard of it, or has heard of its successor."""
    answer = Broker.answer

    def of_any_epoch(self: Broker, request: following.Fetch, fetcher: Broker) -> Any:
        return answer(self, request._replace(epoch=self.leader.epoch), fetcher)

    patch.setattr(Broker, "answer", of_any_epoch)


def take_late_answers(patch: Patch) -> None:
    """A follower does not ask which of its requests, and in which epoch, an answer is for."""
    step = PartitionFollowing.step

    def any_number(self: PartitionFollowing, event: following.Event) -> Followed:
        if isinstance(event, following.FetchAnswered):
            event = event._replace(number=self._number)
        return step(self, event)

    def in_any_epoch(self: Broker, answer: following.FetchAnswered, records: list[Record], epoch: Epoch) -> None:
        if not self.leads:
            self.pending = records
            self._followed(self.follower.step(answer))

    patch.setattr(PartitionFollowing, "step", any_number)
    patch.setattr(Broker, "answered", in_any_epoch)


# --- rule 3: what is committed --------------------------------------------------------------------------------------


def ignore_the_minimum(patch: Patch) -> None:
    """The mark moves however few replicas are in sync."""
    patch.setattr(PartitionLeadership, "has_minimum", property(lambda self: bool(self._isr)))


def count_no_pending_additions(patch: Patch) -> None:
    """What KIP-497 mends: the controller may have committed the new member already."""
    propose = PartitionLeadership._propose

    def of_the_committed(self: PartitionLeadership, isr: Members) -> Led:
        effects = propose(self, isr)
        self._maximal_isr = self._isr
        return effects

    patch.setattr(PartitionLeadership, "_propose", of_the_committed)


def count_pending_removals_as_done(patch: Patch) -> None:
    """A leader commits without a member as soon as it has asked to be rid of it."""
    propose = PartitionLeadership._propose

    def of_the_proposed(self: PartitionLeadership, isr: Members) -> Led:
        effects = propose(self, isr)
        self._maximal_isr = isr
        return effects + self._advance()

    patch.setattr(PartitionLeadership, "_propose", of_the_proposed)


def commit_what_the_leader_has(patch: Patch) -> None:
    """The mark follows the leader's own log."""

    def alone(self: PartitionLeadership) -> Led:
        end = self._durable_ends.get(self.broker_id, Offset(0))
        if not self._has_lease or not self.has_minimum or end <= self.high_watermark:
            return ()
        self.high_watermark = end
        return (leadership.HighWatermarkMoved(end),)

    patch.setattr(PartitionLeadership, "_advance", alone)


def tell_what_is_not_synced(patch: Patch) -> None:
    """A follower says that it has what it has only written."""
    fetch = PartitionFollowing._fetch

    def with_the_log_end(self: PartitionFollowing) -> Followed:
        asked = (one for one in fetch(self) if isinstance(one, following.Fetch))
        return tuple(one._replace(durable_end=self._log_end) for one in asked)

    patch.setattr(PartitionFollowing, "_fetch", with_the_log_end)


# --- rule 5: who is in sync -----------------------------------------------------------------------------------------


def let_anybody_join(patch: Patch) -> None:
    """A follower is in sync as soon as it fetches."""

    def at_once(self: PartitionLeadership, replica: BrokerId, *_: Any) -> Led:
        return self._propose(self._isr | {replica}) if replica not in self._isr and self._can_propose else ()

    patch.setattr(PartitionLeadership, "_expand", at_once)


def let_join_who_has_the_mark(patch: Patch) -> None:
    """A new leader's mark lags behind what its predecessor committed: to have reached it is not enough."""

    def at_the_mark(self: PartitionLeadership, replica: BrokerId, *_: Any) -> Led:
        end = self._durable_ends.get(replica, Offset(0))
        if replica in self._isr or not self._can_propose or end < self.high_watermark:
            return ()
        return self._propose(self._isr | {replica})

    patch.setattr(PartitionLeadership, "_expand", at_the_mark)


def let_leaders_decide(patch: Patch) -> None:
    """A leader acts on the ISR that it has proposed, whatever the controller says to it."""
    propose = PartitionLeadership._propose

    def decided(self: PartitionLeadership, isr: Members) -> Led:
        effects = propose(self, isr)
        self._isr = self._maximal_isr = isr
        return effects + self._advance()

    patch.setattr(PartitionLeadership, "_propose", decided)


def compare_no_partition_epoch(patch: Patch) -> None:
    """The controller takes proposals that were made for an earlier ISR."""
    change = decisions.change_isr

    def of_any_epoch(image: Image, leader: BrokerId, epoch: BrokerEpoch, proposal: IsrProposal, minimum_of: Any) -> Any:
        now = image.assignment(proposal.stream, proposal.index)
        assert now is not None
        return change(image, leader, epoch, replace(proposal, partition_epoch=now.partition_epoch), minimum_of)

    patch.setattr(cluster, "change_isr", of_any_epoch)


def let_fenced_brokers_join(patch: Patch) -> None:
    """What KIP-841 mends: a broker without a lease is in no ISR."""
    change = decisions.change_isr

    def with_fenced(image: Image, leader: BrokerId, epoch: BrokerEpoch, proposal: IsrProposal, minimum_of: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Registered, "active", True)
            return change(image, leader, epoch, proposal, minimum_of)

    patch.setattr(cluster, "change_isr", with_fenced)


# --- rule 6: leases -------------------------------------------------------------------------------------------------


def lead_without_a_lease(patch: Patch) -> None:
    """A leader that hears nothing of the controller goes on."""
    patch.setattr(BrokerLease, "holds", lambda self, now_s: True)


def count_the_lease_from_the_answer(patch: Patch) -> None:
    """A broker counts its lease from when it heard of it, the controller from when it gave it."""
    renewed = BrokerLease.renewed
    patch.setattr(BrokerLease, "renewed", lambda self, sent_s: renewed(self, sent_s + LEASE_S))


def end_leases_early(patch: Patch) -> None:
    """The controller gives a broker's partitions to others while that still has its lease."""
    renew = BrokerLeases.renew
    patch.setattr(BrokerLeases, "renew", lambda self, broker, now_s: renew(self, broker, now_s - LEASE_S))


# --- rule 7: who may lead -------------------------------------------------------------------------------------------


def keep_whoever_leaves_eligible(patch: Patch) -> None:
    """Who left the ISR while that was at its minimum has missed what was committed since."""
    keep = assignment._with_eligible_replicas

    def always(before: Assignment, after: Assignment, lost: Members, minimum: int) -> Assignment:
        kept = keep(before, after, lost, minimum)
        left = ({*before.isr, *before.elr} & {*after.replicas}) - {*after.isr} - lost
        return change_struct(kept, elr=assignment.ordered({*kept.elr, *left}))

    patch.setattr(assignment, "_with_eligible_replicas", always)


def elect_anybody(patch: Patch) -> None:
    """Where nobody is eligible, somebody else leads, and nobody has asked for it."""
    decide = assignment._with_leader

    def unclean(after: Assignment, wish: assignment.PartitionUpdate, rules: assignment.Eligibility) -> Assignment:
        decided = decide(after, wish, rules)
        if decided.leader != NO_BROKER:
            return decided
        return decide(after, replace(wish, election=assignment.Election.UNCLEAN), rules)

    patch.setattr(assignment, "_with_leader", unclean)


def believe_in_clean_shutdowns(patch: Patch) -> None:
    """A process that was killed stays in the ISR as if it had closed its logs."""

    def clean(image: Image, wanted: RegistrationRequest, minimum_of: Callable[[Stream], int]) -> Any:
        before = image.brokers.get(wanted.id)
        return membership.register(
            image, replace(wanted, clean_epoch=None if before is None else before.epoch), minimum_of
        )

    patch.setattr(cluster, "register", clean)


def let_the_last_one_lead_on(patch: Patch) -> None:
    """Where all were killed, the last one that registers leads, though it may have come back as an older copy."""
    leave = assignment._without_lost

    def but_the_last(after: Assignment, lost: Members) -> Assignment:
        return after if len(after.isr) + len(after.elr) == 1 else leave(after, lost)

    patch.setattr(assignment, "_without_lost", but_the_last)


# --- rule 8: what readers are told ----------------------------------------------------------------------------------


def tell_latest_at_once(patch: Patch) -> None:
    """What KIP-207 mends: a new leader's mark is older than what was committed."""
    patch.setattr(PartitionLeadership, "knows_latest", True)


def show_what_followers_have(patch: Patch) -> None:
    """A follower takes all that its leader gave it for committed."""
    changed = PartitionFollowing._log_changed

    def shown(self: PartitionFollowing, log_end: Offset) -> Followed:
        effects = changed(self, log_end)
        self.high_watermark = max(self.high_watermark, log_end)
        return (following.HighWatermarkMoved(self.high_watermark), *effects)

    patch.setattr(PartitionFollowing, "_log_changed", shown)
