"""What all intakes of a broker share."""

from dataclasses import dataclass

from logboom.base.ids import BrokerId
from logboom.base.ports import Clock, Ids
from logboom.broker.advisories.service import Advisories
from logboom.broker.isolation import Isolation
from logboom.broker.partition.services import LeadershipChanges
from logboom.broker.peers import Peers
from logboom.broker.publishing import Publishing
from logboom.broker.rate_limited_log import RateLimitedLog
from logboom.broker.replicas import Replicas
from logboom.nats.ingress.budget import Budget
from logboom.nats.ingress.refusals import Refusals
from logboom.nats.link.link import Link
from logboom.nats.metrics import NatsMetrics


@dataclass(frozen=True, slots=True)
class IngressServices:
    """See the module. On one loop."""

    broker_id: BrokerId
    link: Link
    replicas: Replicas
    leadership_changes: LeadershipChanges
    isolation: Isolation
    peers: Peers
    publishing: Publishing
    budget: Budget
    refusals: Refusals
    metrics: NatsMetrics
    advisories: Advisories
    log: RateLimitedLog
    clock: Clock
    ids: Ids
