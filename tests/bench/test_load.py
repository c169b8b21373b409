"""`logboom bench` against a real broker: short runs whose figures hold together and whose streams are gone after."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from tests.support.commands import run_logboom
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

from logboom.bench.consume import run_consume
from logboom.bench.histogram import PERCENTILES, histogram_of, merged, summary, table
from logboom.bench.latency import LatencyLoad, run_latency
from logboom.bench.produce import ProduceLoad, beside_the_first, produce
from logboom.bench.servers import NothingServer
from logboom.bench.streams import bench_stream


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("bench") / "data") as running:
        yield running


@pytest.fixture(autouse=True)
def _leaves_no_stream(broker: BrokerProcess) -> Iterator[None]:
    yield
    left = AdminClient({"bootstrap.servers": broker.kafka}).list_topics(timeout=WAIT_S).topics
    assert [name for name in left if "bench" in name] == []


def test_runs_are_told_as_multiples_of_the_first() -> None:
    one = {"replicas": 1, "mb_per_s": 30.0, "server_cpu_s_per_million_records": 2.0}
    three = {"replicas": 3, "mb_per_s": 12.0, "server_cpu_s_per_million_records": 5.0}
    assert beside_the_first([one, three]) == [{"replicas": 3, "rate": 0.4, "server_cpu": 2.5}]
    assert beside_the_first([one]) == []


@pytest.mark.parametrize(("record_bytes", "request_bytes"), [(100, 65_536), (256, 1), (1_000_000, 65_536)])
def test_a_counted_load_is_in_the_stream(broker: BrokerProcess, record_bytes: int, request_bytes: int) -> None:
    load = ProduceLoad(record_bytes, request_bytes, connections=3, in_flight=7, messages=300)
    with bench_stream(broker.kafka) as stream:
        result = produce(broker.kafka, stream, load)
        read = run_consume(broker.kafka, stream, 300, 1 << 20, rounds=1)
    assert result["records"] == read["records"]
    assert int(str(result["records"])) >= 300
    assert result["bytes"] == read["bytes"]


def test_a_timed_load_counts_only_its_window(broker: BrokerProcess) -> None:
    with bench_stream(broker.kafka, partitions=2) as stream:
        result: dict[str, Any] = produce(broker.kafka, stream, ProduceLoad(partitions=2, seconds=0.5, warm_up_s=0.3))
    assert result["requests"] > result["requests_per_s"] * result["seconds"] * 0.99
    assert result["client_cpu_share"] > 0


@pytest.mark.in_turn(4)
@pytest.mark.parametrize(
    ("reader", "partitions", "size", "rate"),
    [("raw", 1, 256, 500), ("raw", 1, 100_000, 50), ("librdkafka", 1, 256, 500), ("librdkafka", 3, 100_000, 50)],
)
def test_latency_of_every_message_is_counted(
    broker: BrokerProcess, reader: str, partitions: int, size: int, rate: int
) -> None:
    load = LatencyLoad(size, rate, seconds=0.5, warm_up_s=0.2, reader=reader, partitions=partitions)
    with bench_stream(broker.kafka, partitions=partitions) as stream:
        result = run_latency(broker.kafka, stream, load)
    assert result["end_to_end"]["count"] == rate // 2
    assert result["ack"]["count"] == rate // 2
    assert 0 < result["end_to_end"]["percentiles_ms"]["50.0"] <= result["end_to_end"]["max_ms"]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("reader", ["raw", "librdkafka"])
def test_latency_of_the_client_alone(tmp_path: Path, reader: str) -> None:
    server = NothingServer(tmp_path / "nothing")
    server.start()
    try:
        for stream, idempotent in (("one", False), ("other", True)):
            load = LatencyLoad(256, 500, 0.5, 0.2, idempotent=idempotent, reader=reader)
            result = run_latency(server.address, stream, load)
            assert result["end_to_end"]["count"] == 250
    finally:
        server.remove()


def test_the_raw_reader_is_refused_several_partitions(broker: BrokerProcess) -> None:
    done = run_logboom(["bench", "latency", "-b", broker.kafka, "--partitions", "2"], timeout_s=WAIT_S)
    assert done.returncode == 1
    assert b"add --reader librdkafka" in done.stderr


def test_the_command_writes_data_and_a_picture(broker: BrokerProcess, tmp_path: Path) -> None:
    command = ["bench", "latency", "-b", broker.kafka, "--rate", "300", "--seconds", "0.5", "--alone", "--json"]
    done = run_logboom([*command, "--out", str(tmp_path)], timeout_s=WAIT_S)
    assert done.returncode == 0, done.stderr[-3_000:]
    told = json.loads(done.stdout)
    assert [name for name in told if name.endswith("alone")]
    folder = Path(told["folder"])
    assert json.loads((folder / "result.json").read_text())["machine"]["cores"]
    assert (folder / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_percentiles_beyond_the_messages_are_in_brackets() -> None:
    told = summary(histogram_of(range(1, 1_001)))
    assert told["percentiles_ms"]["50.0"] == pytest.approx(0.5, rel=0.01)
    assert told["percentiles_ms"]["99.9999"] == told["max_ms"]
    assert max(p for p, _ in told["curve_ms"]) <= 99.9
    _, row = table({"one": told})
    assert [cell.startswith("(") for cell in row[1 : 1 + len(PERCENTILES)]] == [False] * 4 + [True] * 3


def test_runs_merge_to_the_histogram_of_all_their_messages() -> None:
    parts = [summary(histogram_of(range(1, 500))), summary(histogram_of(range(500, 1_001)))]
    assert merged(parts) == summary(histogram_of(range(1, 1_001)))
