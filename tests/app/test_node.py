"""The life of a node as the system sees it: ready, metrics, signals, systemd, and what keeps it from starting."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import structlog
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families
from tests.app.running import get
from tests.peer.servers import KEY, LoggingServer
from tests.support.commands import run_logboom
from tests.support.server import BrokerProcess, BrokerStartError, free_port
from tests.support.waiting import WAIT_S

from logboom.app.config import load_node_config
from logboom.app.node import Node
from logboom.base.errors import LogboomError
from logboom.base.ids import BrokerId, DirectoryId
from logboom.base.settings import split_address
from logboom.broker.peers import Address, FrameKind, Lane, PeerIdentity, PeerUnavailableError
from logboom.peer import format_cluster_key


def test_ready_line_tells_where_everything_is(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        assert broker.ready == {
            "kafka": broker.kafka,
            "advertised": broker.kafka,
            "http": broker.http,
            "nats": None,
            "peer": None,
            "data": str(tmp_path / "data"),
            "pid": broker.pid,
        }
        assert get(broker.http, "/healthz") == (200, "ok\n")
        assert get(broker.http, "/readyz") == (200, "ready\n")
        assert get(broker.http, "/nothing")[0] == 404


def test_port_0_is_a_free_port(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", "--kafka", "127.0.0.1:0", "--http", "null") as broker:
        assert str(broker.ready["kafka"]).startswith("127.0.0.1:")
        assert broker.ready["kafka"] not in ("127.0.0.1:0", broker.kafka)
        assert broker.ready["http"] is None


def test_metrics_count_what_happened(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        producer = Producer({"bootstrap.servers": broker.kafka})
        for number in range(7):
            producer.produce("s", str(number))
        assert producer.flush(WAIT_S) == 0
        status, text = get(broker.http, "/metrics")
        assert status == 200
        values = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        assert values["logboom_appended_records_total", ()] >= 7
        where = (("partition", "0"), ("stream", "s"))
        assert values["logboom_partition_high_watermark", where] == 7
        assert values["logboom_partition_offline", where] == 0
        assert values["logboom_kafka_api_requests_total", (("api", "Produce"),)] >= 1
        assert values["logboom_kafka_connections", ()] >= 1
        assert values["process_resident_memory_bytes", ()] > 0


class Acks:
    """Which records were acknowledged, as the client tells of them."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.taken.append(int(message.value() or b""))


def read_all(bootstrap: str, stream: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.partition.eof": True})
    found: list[int] = []
    try:
        consumer.assign([TopicPartition(stream, 0, 0)])
        while (message := consumer.poll(WAIT_S)) is not None and message.error() is None:
            found.append(int(message.value() or b""))
        assert message is not None
    finally:
        consumer.close()
    return found


def test_sigterm_under_load_ends_with_0_and_every_ack_holds(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        producer = Producer({"bootstrap.servers": broker.kafka, "enable.idempotence": True, "linger.ms": 1})
        acks, enough = Acks(), 20_000
        for number in range(enough):
            producer.produce("s", str(number), on_delivery=acks.delivered)
            producer.poll(0)
        while not acks.taken:
            producer.poll(0.01)
        assert broker.sigterm() == 0
        assert "broker stopped" in broker.log_text()
        broker.start()
        assert producer.flush(WAIT_S) == 0
        assert acks.taken == list(range(enough))
        assert read_all(broker.kafka, "s") == list(range(enough))
        assert "damage" not in broker.log_text()


def test_sigint_ends_with_0(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        assert broker.end(signal.SIGINT) == 0


def test_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.pause()  # so that both are there before it looks
        os.kill(broker.pid, signal.SIGTERM)
        os.kill(broker.pid, signal.SIGINT)
        broker.resume()
        assert broker.end(signal.SIGCONT) in (128 + signal.SIGTERM, 128 + signal.SIGINT)
        broker.start()


def test_waiting_fetch_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        consumer = Consumer(
            {
                "bootstrap.servers": broker.kafka,
                "group.id": "g",
                "fetch.wait.max.ms": 280_000,
                "socket.timeout.ms": 300_000,
            }
        )
        producer = Producer({"bootstrap.servers": broker.kafka})
        producer.produce("s", "x")
        assert producer.flush(WAIT_S) == 0
        consumer.assign([TopicPartition("s", 0, 0)])
        assert consumer.poll(WAIT_S) is not None
        consumer.poll(0.5)  # the next fetch waits at the broker, for longer than its end is waited for
        assert broker.sigterm() == 0
        broker.start()  # librdkafka's close waits for a minute where no broker is
        consumer.close()


def test_systemd_is_told(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(WAIT_S)
        with BrokerProcess(tmp_path / "data", environment={"NOTIFY_SOCKET": str(tmp_path / "notify")}) as broker:
            assert listener.recv(100) == b"READY=1"
            broker.sigterm()
            assert listener.recv(100) == b"STOPPING=1"


def test_a_systemd_socket_without_a_listener_is_ignored(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", environment={"NOTIFY_SOCKET": str(tmp_path / "nobody")}) as broker:
        assert broker.running


def test_second_broker_on_one_data_directory_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        second = BrokerProcess(tmp_path / "data", log_path=tmp_path / "second.log")
        with pytest.raises(BrokerStartError, match="ended with 1"):
            second.start()
        assert str(broker.pid) in second.log_text()
        assert "Traceback" not in second.log_text()


def test_address_in_use_is_named_with_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for option, setting in (("--kafka", "kafka.listen"), ("--http", "http.listen")):
            broker = BrokerProcess(tmp_path / "data", option, address, log_path=tmp_path / f"{setting}.log")
            with pytest.raises(BrokerStartError):
                broker.start()
            assert f"cannot listen on {address}" in broker.log_text()
            assert f"choose another with {setting}" in broker.log_text()
            assert "Traceback" not in broker.log_text()


def test_data_directory_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    broker = BrokerProcess(tmp_path / "file")
    with pytest.raises(BrokerStartError):
        broker.start()
    assert f"logboom: cannot use the data directory {tmp_path / 'file'}: File exists" in broker.log_text()


def serve(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "logboom.cli", "serve", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_person_is_told_where_it_is_and_how_to_stop_it(tmp_path: Path) -> None:
    kafka, http = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    told = ("--set", "kafka.advertised=logs.example.com:9092")
    with serve("--data", str(tmp_path / "data"), "--kafka", kafka, "--http", http, *told) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(5)]
        process.terminate()
        assert process.wait(WAIT_S) == 0
    assert lines == [
        "Logboom is ready.\n",
        f"  Kafka  {kafka}, as logs.example.com:9092 to clients (kafka.advertised)\n",
        f"  HTTP   http://{http}/metrics\n",
        f"  data   {tmp_path / 'data'}\n",
        f"  stop   Ctrl-C, or kill {process.pid}\n",
    ]


def test_log_is_json_where_no_terminal_is(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        pass
    lines = [json.loads(line) for line in broker.log_text().splitlines()]
    assert lines
    for line in lines:
        assert {"timestamp", "level", "service", "message"} <= line.keys()


def test_log_is_text_where_it_is_asked_for(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", "--set", "log.format=text") as broker:
        pass
    assert "broker started" in broker.log_text()
    assert "{" not in broker.log_text().splitlines()[-1]


def test_configuration_file_and_its_errors(tmp_path: Path) -> None:
    file = tmp_path / "logboom.yaml"
    file.write_text("broker:\n  default_partitions: 3\nlog: {level: warning}\n")
    with BrokerProcess(tmp_path / "data", "--config", str(file)) as broker:
        producer = Producer({"bootstrap.servers": broker.kafka})
        producer.produce("s", "x")
        assert producer.flush(WAIT_S) == 0
        assert len(producer.list_topics(timeout=WAIT_S).topics["s"].partitions) == 3
    file.write_text("brokr: 1\nkafka:\n  listen: nowhere\n")
    with serve("--config", str(file), "--data", str(tmp_path / "other")) as process:
        out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out) == (1, "")
    assert err.splitlines() == [
        f"logboom: {file}:1: brokr: unknown key 'brokr' (did you mean 'broker'?)",
        f"logboom: {file}:3: kafka.listen: 'nowhere' is not an address such as 127.0.0.1:9092",
    ]
    assert not (tmp_path / "other").exists()


def test_metrics_answer_while_clients_come_and_go(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        stop = threading.Event()

        def come_and_go() -> None:
            while not stop.is_set():
                producer = Producer({"bootstrap.servers": broker.kafka})
                producer.produce("s", "x")
                producer.flush(WAIT_S)

        crowd = [threading.Thread(target=come_and_go) for _ in range(3)]
        for each in crowd:
            each.start()
        try:
            assert {get(broker.http, "/metrics")[0] for _ in range(20)} == {200}
        finally:
            stop.set()
            for each in crowd:
                each.join(WAIT_S)


def listens(address: str) -> bool:
    host, port = address.split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


class SlowBroker:
    """Stands in for a broker whose disk takes its time."""

    @classmethod
    async def start(cls, *_: object, **__: object) -> "SlowBroker":
        await asyncio.Event().wait()
        raise AssertionError


def test_start_that_takes_long_is_told_of_and_can_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logboom.app.node.Broker", SlowBroker)
    http = f"127.0.0.1:{free_port()}"
    config = load_node_config(None, {}, {"broker.data_dir": str(tmp_path), "http.listen": http})

    async def run() -> None:
        node = Node(config, structlog.get_logger())
        starting = asyncio.create_task(node.start())
        async with asyncio.timeout(WAIT_S):
            while await asyncio.to_thread(listens, http) is False:
                await asyncio.sleep(0.01)
        assert await asyncio.to_thread(get, http, "/readyz") == (503, "starting\n")
        assert (await asyncio.to_thread(get, http, "/healthz"))[0] == 200
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        with pytest.raises(ConnectionRefusedError):
            get(http, "/healthz")

    asyncio.run(run())


def test_other_brokers_come_in_with_the_clusters_key_alone(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(format_cluster_key(KEY))
    key.chmod(0o600)
    flags = ("--set", "peer.listen=127.0.0.1:0", "--set", f"peer.key_file={key}")
    assert run_logboom(["cluster", "found", "--data", str(tmp_path / "data")], timeout_s=WAIT_S).returncode == 0
    with BrokerProcess(tmp_path / "data", *flags) as broker:
        host, port = split_address(str(broker.ready["peer"]))

        async def ask(key: bytes) -> PeerIdentity:
            """Whatever comes of the request, the handshake tells who was asked."""
            other = LoggingServer(key)
            await other.start()
            other.identify(PeerIdentity(BrokerId(7), DirectoryId("d"), ""))
            link = other._make_link(None, Lane.CONTROL, Address(host, port))
            try:
                await link.call(FrameKind.CONTROL, [b"?"], timeout_s=0.5)
            except LogboomError:
                if link.other is None:
                    raise
            finally:
                link.close("the test is over")
                await other.stop()
            assert link.other is not None
            return link.other

        told = asyncio.run(ask(KEY))
        node = json.loads((tmp_path / "data" / "node.json").read_text())
        assert (told.broker_id, told.directory_id, told.cluster_id) == (
            node["broker_id"],
            node["directory_id"],
            node["cluster_id"],
        )
        with pytest.raises(PeerUnavailableError, match=r"same peer\.key_file"):
            asyncio.run(ask(bytes(32)))
        _, text = get(broker.http, "/metrics")
        assert "logboom_peer_accepted_total 2.0" in text
        assert 'logboom_limit{limit="peer.unauthenticated_connections"} 64.0' in text
    key.chmod(0o644)
    with (
        pytest.raises(BrokerStartError, match="can be read or changed by other users"),
        BrokerProcess(tmp_path / "data", *flags),
    ):
        pass
