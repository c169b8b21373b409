"""The HTTP door of a simulated node: it answers whatever hangs below it, and probes find a door that does not."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric
from tests.sim.nodes import connected, on_node

from logboom.base.ids import Offset
from logboom.broker.broker import Broker
from logboom.http.broker_metrics import broker_metrics
from logboom.http.server import HttpServer
from logboom.records import Record, build_batch
from logboom.sim.client import TopicPartition
from logboom.sim.node import SimNode
from logboom.sim.process import Process
from logboom.sim.scenario import NodeOutcome, Scenario, run_seed
from logboom.sim.simulation import Simulation

QUIET = Scenario(
    troubled_s=6.0,
    partitions=1,
    trimmed_partitions=0,
    aged_partitions=0,
    idempotent_producers=1,
    plain_producers=0,
    consumers=0,
    members=0,
    made_streams=0,
    probers=3,
    faults=("hang",),
)


async def get(node: SimNode, path: str) -> tuple[int, str]:
    """Status and body, within simulated seconds."""
    reader, writer = await asyncio.open_connection(*node.http_address)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: n\r\n\r\n".encode())
    async with asyncio.timeout(20):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body.decode()


def process_of(node: SimNode) -> Process:
    assert node.process is not None
    return node.process


def test_a_disk_that_hangs_is_told_by_readiness_alone() -> None:
    async def body(node: SimNode, _: Simulation) -> None:
        client = await connected(node)
        await client.create_stream("s", 1, {})
        assert await get(node, "/readyz") == (200, "ready\n")
        node.device.hanging = frozenset(("write", "sync", "sync_dir"))
        batch = bytes(build_batch([Record(Offset(0), 0, None, b"value", ())]))
        producing = asyncio.ensure_future(client.produce(TopicPartition("s", 0), batch))
        await asyncio.sleep(30)
        status, reason = await get(node, "/readyz")
        assert status == 503
        assert "disk" in reason
        assert await get(node, "/healthz") == (200, "ok\n")
        assert "logboom_flush_running_seconds" in (await get(node, "/metrics"))[1]
        node.device.mend()
        await asyncio.gather(producing, return_exceptions=True)
        client.close()

    on_node(body)


def test_a_node_that_stops_closes_its_http_door_last() -> None:
    async def body(node: SimNode, _: Simulation) -> None:
        process = process_of(node)
        node.device.hanging = frozenset(("sync",))
        client = await connected(node)
        creating = asyncio.ensure_future(client.create_stream("s", 1, {}))
        await asyncio.sleep(1)
        stopping = asyncio.ensure_future(node.stop())
        await asyncio.sleep(1)
        assert await get(node, "/readyz") == (503, "stopping\n")
        node.device.mend()
        await stopping
        with pytest.raises(ConnectionRefusedError):
            await get(node, "/readyz")
        await asyncio.gather(creating, return_exceptions=True)
        client.close()
        assert process.loop.life.faults == []

    on_node(body)


def test_metrics_are_checked_while_everything_goes_wrong() -> None:
    outcome = run_seed(1, replace(QUIET, faults=("hang", "kill", "full", "reads"), trouble_pause_max_s=0.3))
    assert outcome.violations == ()
    assert outcome.scrapes > 2


def probed(scenario: Scenario) -> NodeOutcome:
    """The first of a few seeds whose run is found to be wrong."""
    return next((outcome for seed in range(5) if (outcome := run_seed(seed, scenario)).violations), run_seed(0, QUIET))


def test_a_server_without_a_deadline_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    made = HttpServer.__init__

    def patient(self: HttpServer, *args: object, **kwargs: object) -> None:
        made(self, *args, **{**kwargs, "request_timeout_s": 60.0})  # type: ignore[arg-type]

    monkeypatch.setattr(HttpServer, "__init__", patient)
    assert "neither answered nor closed" in "".join(probed(QUIET).violations)


def behind(broker: Broker, version: str, build: str, partition_series_max: int) -> Iterator[Metric]:
    """High-water marks as they were one record ago."""
    for family in broker_metrics(broker, version, build, partition_series_max):
        if isinstance(family, GaugeMetricFamily) and family.name == "logboom_partition_high_watermark":
            family.samples = [sample._replace(value=max(sample.value - 1, 0)) for sample in family.samples]
        yield family


def test_metrics_that_lag_behind_acknowledgements_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logboom.app.node.broker_metrics", behind)
    assert "after clients were told of" in "".join(probed(QUIET).violations)
