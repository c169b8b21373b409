"""How many acked records a second a server takes, from requests encoded beforehand."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from logboom.bench import wire
from logboom.bench.blast import Blast, Window
from logboom.bench.streams import leaders_of
from logboom.records import HEADER_BYTES


@dataclass(frozen=True)
class ProduceLoad:
    """The load. `connections` go to each broker that leads a partition; `in_flight` counts requests over all of them.

    With `messages` the run ends after this many records (rounded up to whole requests) and all of them count; else it
    takes `warm_up_s` and then `seconds`, which count.
    """

    record_bytes: int = 100
    request_bytes: int = 64 * 1024
    connections: int = 4
    in_flight: int = 16
    partitions: int = 1
    seconds: float = 10.0
    warm_up_s: float = 2.0
    messages: int = 0

    def records_per_request(self) -> int:
        """Records of `record_bytes` that fill a batch of `request_bytes`; at least one."""
        one = len(wire.batch_of(self.record_bytes, 1)) - HEADER_BYTES
        return max(1, (self.request_bytes - HEADER_BYTES) // one)


def produce(bootstrap: str, stream: str, load: ProduceLoad) -> dict[str, object]:
    """Keep `in_flight` requests under way for the load; only answers inside its time count.

    Rates are per second, MB are 10^6 bytes of record batches, `client_cpu_share` is the share of one core that this
    load generator used: near 1 it was the limit. Raises BenchError on the first sign of refusal.
    """
    per_request = load.records_per_request()
    batch = wire.batch_of(load.record_bytes, per_request)
    routes: dict[str, list[bytes]] = {}
    for partition, leader in enumerate(leaders_of(bootstrap, stream)[: load.partitions]):
        routes.setdefault(leader, []).append(wire.produce_frame(stream, partition, batch))
    requests = -(-load.messages // per_request)
    blast = Blast(routes, load.connections, wire.produce_error_at(stream))
    window = Window(load.warm_up_s, load.seconds, requests)
    window.over(blast, load.in_flight)
    measured, took_s, share = window.measured()
    return {
        "load": asdict(load),
        "batch_bytes": len(batch),
        "requests_per_s": round(measured / took_s, 1),
        "records_per_s": round(measured / took_s * per_request, 1),
        "mb_per_s": round(measured / took_s * len(batch) / 1e6, 2),
        "value_mb_per_s": round(measured / took_s * per_request * load.record_bytes / 1e6, 2),
        "requests": blast.answered,
        "records": blast.answered * per_request,
        "bytes": blast.answered * len(batch),
        "seconds": round(took_s, 3),
        "client_cpu_share": round(share, 3),
    }


def beside_the_first(results: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Of each later run, its rate and its servers' processor time as multiples of those of the first."""
    kinds = {"mb_per_s": "rate", "server_cpu_s_per_million_records": "server_cpu"}
    first, *others = results
    return [
        {
            "replicas": one["replicas"],
            **{short: round(one[name] / first[name], 3) for name, short in kinds.items() if first.get(name)},
        }
        for one in others
    ]
