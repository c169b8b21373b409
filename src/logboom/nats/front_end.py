"""The NATS front end of one broker: a connection that is kept up, and the subscriptions for what this broker leads."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from logboom.base.limits import LimitUsage
from logboom.broker.rate_limited_log import RateLimitedLog
from logboom.nats.config import NatsConfig
from logboom.nats.ingress.budget import Budget
from logboom.nats.ingress.ingress import Ingress
from logboom.nats.ingress.refusals import Refusals
from logboom.nats.ingress.services import IngressServices
from logboom.nats.link.link import Link
from logboom.nats.metrics import NatsMetrics
from logboom.nats.recording.recorder import ServiceRecorder

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from logboom.broker.broker import Broker

_POLL_S: Final = 0.01


class NatsFrontEnd:
    """`start`, once; `stop`, once, while the broker still works."""

    def __init__(self, broker: "Broker", config: NatsConfig, log: "FilteringBoundLogger") -> None:
        """`config.servers` names servers. Raises LogboomError where a file with a secret cannot be used."""
        self._hits: Counter[str] = Counter()
        self.metrics = NatsMetrics()
        limited = RateLimitedLog(log, broker.clock, self._hits)
        name = f"logboom-{broker.identity.broker_id}"
        self._advisories = broker.advisories
        self._link = Link(config, name, ids=broker.runtime.ids, log=limited, metrics=self.metrics)
        self._link.on_lost = self._lost
        self._link.on_refused = lambda why: broker.advisories.note("nats.subscription_refused", message=why)
        self._budget = Budget(
            config.max_inflight_bytes,
            lambda: broker.publishing.is_backpressured,
            self._link.hold,
            self._link.release,
            self.metrics,
        )
        services = IngressServices(
            broker_id=broker.identity.broker_id,
            link=self._link,
            replicas=broker.replicas,
            leadership_changes=broker.leadership_changes,
            isolation=broker.isolation,
            peers=broker.peers,
            publishing=broker.publishing,
            budget=self._budget,
            refusals=Refusals(),
            metrics=self.metrics,
            advisories=broker.advisories,
            log=limited,
            clock=broker.clock,
            ids=broker.runtime.ids,
        )
        self._ingress = Ingress(services, broker.catalog)
        self._recorder = ServiceRecorder(services, broker.catalog, config)

    def limits(self) -> Iterator[LimitUsage]:
        """How much of each limit is used."""
        yield LimitUsage("nats.max_inflight_bytes", self._budget.limit_bytes, self.metrics.inflight_bytes)
        yield self._recorder.usage()

    def limit_hits(self) -> dict[str, int]:
        """How often each limit was reached."""
        return dict(self._hits)

    def start(self) -> None:
        """Begin to connect, and to subscribe. Where NATS is not there yet, it is tried until it is."""
        self._advisories.expect()
        self._link.start()
        self._ingress.start()
        self._recorder.start()

    def _lost(self, kind: str, why: str) -> None:
        self._ingress.missed()
        self._advisories.note("nats.disconnected", reason=kind, message=why)

    async def stop(self, grace_s: float) -> None:
        """Give other leaders what they have to store; subscribe to nothing any more and answer what has arrived, for
        `grace_s` seconds each; then say no more."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ingress.handed_over(), grace_s)
        self._ingress.stop()
        self._recorder.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._link.ended()
                while self.metrics.inflight_bytes:
                    await asyncio.sleep(_POLL_S)
        self._budget.close()
        await self._link.stop()
