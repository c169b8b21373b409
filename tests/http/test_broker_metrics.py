"""What /metrics tells of a broker: each partition, or each stream where there are too many; and what retention took."""

from pathlib import Path

from prometheus_client.core import Metric
from tests.kafka.door import batch, run, running, until

from logboom.broker.broker import Broker
from logboom.http.broker_metrics import broker_metrics

Values = dict[tuple[str, tuple[str, ...]], float]


def told(broker: Broker, partition_series_max: int) -> Values:
    metrics: list[Metric] = list(broker_metrics(broker, "1", "plain Python", partition_series_max))
    return {
        (sample.name, tuple(sample.labels.values())): sample.value for metric in metrics for sample in metric.samples
    }


def test_above_a_number_of_partitions_metrics_are_per_stream(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node:
            broker = node.broker
            await broker.catalog.create_stream("t", partitions=3)
            for index in (0, 0, 2):
                broker.replicas.find("t", index).append(bytearray(batch(b"a", b"b")), acks=-1, done=lambda result: None)
            await until(
                lambda: (
                    broker.replicas.find("t", 0).high_watermark == 4
                    and broker.replicas.find("t", 2).high_watermark == 2
                )
            )
            count = len(list(broker.replicas))
            single = told(broker, count)
            assert single["logboom_partition_high_watermark", ("t", "0")] == 4
            assert not any(name.startswith("logboom_stream_") for name, _ in single)
            together = told(broker, count - 1)
            assert together["logboom_stream_partitions", ("t",)] == 3
            assert together["logboom_stream_records", ("t",)] == 6
            assert together["logboom_stream_size_bytes", ("t",)] == sum(
                single["logboom_partition_size_bytes", ("t", str(index))] for index in range(3)
            )
            assert together["logboom_stream_offline_partitions", ("t",)] == 0
            assert not any(name.startswith("logboom_partition_") for name, _ in together)

    run(body)


def test_what_was_deleted_is_counted_by_its_reason(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node:
            broker = node.broker
            await broker.catalog.create_stream("t", config={"segment.bytes": "16384"})
            partition = broker.replicas.find("t", 0)
            for _ in range(6):
                partition.append(bytearray(batch(bytes(10_000))), acks=-1, done=lambda result: None)
            await until(lambda: partition.high_watermark == 6)
            size = partition.log.size_bytes
            await partition.deletion.delete_records(2)
            await broker.catalog.change_stream_config("t", {"logboom.retention.messages": "1"})
            await partition.deletion.enforce_retention(partition.config)
            values = told(broker, 0)
            assert values["logboom_segments_deleted_total", ("records",)] == 2
            assert values["logboom_segments_deleted_total", ("retention",)] == 3
            deleted = sum(values["logboom_segment_bytes_deleted_total", (why,)] for why in ("records", "retention"))
            assert deleted == size - partition.log.size_bytes > 0

    run(body)
