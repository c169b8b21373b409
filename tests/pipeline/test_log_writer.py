"""The writer of records: in order, once, whatever the log says on the way."""

import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.pipeline.support import make_stream, records
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

from logboom.client.messages import TopicPartition
from logboom.pipeline.edge.log_writer import LogWriter
from logboom.pipeline.edge.record_columns import RecordColumns
from logboom.pipeline.errors import PipelineError
from logboom.records import read_header


def _put(writer: LogWriter, tp: TopicPartition, values: list[bytes]) -> None:
    for packed in RecordColumns(pa.array(values, pa.binary())).packed():
        writer.put(tp, packed)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as process:
        yield process


def test_records_arrive_in_order_through_a_broker_that_dies(broker: BrokerProcess) -> None:
    make_stream(broker.kafka, "out", 2)
    with closing(LogWriter(f"127.0.0.1:1,{broker.kafka}")) as writer:
        for number in range(40):
            _put(writer, TopicPartition("out", number % 2), [f"{number}:{place}".encode() for place in range(100)])
            if number == 20:
                broker.kill9()
                broker.restart()
        writer.settle()
    found = records(broker.kafka, "out")
    for partition in range(2):
        values = [message.value().decode() for message in found if message.partition() == partition]
        assert values == [f"{number}:{place}" for number in range(partition, 40, 2) for place in range(100)]


def test_batches_a_stream_finds_too_large_are_halved(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    admin.create_topics([NewTopic("small", 1, 1, config={"max.message.bytes": "2000"})])["small"].result(WAIT_S)
    values = [bytes([number]) + b"%032d" % (number**15) * 20 for number in range(60)]
    with closing(LogWriter(broker.kafka)) as writer:
        _put(writer, TopicPartition("small", 0), values)
        writer.settle()
        assert [message.value() for message in records(broker.kafka, "small")] == values
        _put(writer, TopicPartition("small", 0), [os.urandom(4_000)])
        with pytest.raises(PipelineError, match="small/0: message_too_large"):
            writer.settle()
        assert writer.failed


# --- a log that says what a test wants ---------------------------------------------------------------------------


class ScriptedLog:
    """Answers metadata and producer ids, and each produce request by the next code of a script (then 0)."""

    def __init__(self, script: list[int | None]) -> None:
        self.script = script
        self.taken: list[tuple[int, int, int]] = []
        """(producer id, base sequence, records) of each batch that was answered with 0."""
        self._producers = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as incoming:
            while head := incoming.read(4):
                request = incoming.read(struct.unpack(">i", head)[0])
                api, _, correlation, name = struct.unpack_from(">hhih", request)
                answer = self._answer(api, request[10 + name :])
                if answer is None:
                    return
                client.sendall(struct.pack(">ii", 4 + len(answer), correlation) + answer)

    def _answer(self, api: int, body: bytes) -> bytes | None:
        if api == 22:
            self._producers += 1
            return struct.pack(">ihqh", 0, 0, self._producers, 0)
        if api == 3:
            host, port = self.address.split(":")
            broker = struct.pack(">iiih9sihhi", 0, 1, 1, 9, host.encode(), int(port), -1, -1, 1)
            return broker + struct.pack(">ihh3sbihiiiiii", 1, 0, 3, b"out", 0, 1, 0, 0, 1, 1, 1, 1, 1)
        code = self.script.pop(0) if self.script else 0
        if code == 0:
            header = read_header(body, 2 + 2 + 4 + 4 + 5 + 4 + 4 + 4)
            self.taken.append((header.producer_id, header.base_sequence, header.records_count))
        return None if code is None else struct.pack(">ih3siihqqqi", 1, 3, b"out", 1, 0, code, 0, -1, 0, 0)


@contextmanager
def _scripted(*codes: int | None) -> Iterator[ScriptedLog]:
    log = ScriptedLog(list(codes))
    try:
        yield log
    finally:
        log.close()


def _written(log: ScriptedLog, batches: int) -> None:
    with closing(LogWriter(log.address)) as writer:
        for number in range(batches):
            _put(writer, TopicPartition("out", 0), [b"%d" % number, b"x"])
        done = threading.Thread(target=writer.settle, daemon=True)
        done.start()
        done.join(WAIT_S)
        assert not done.is_alive()


@pytest.mark.parametrize("trouble", [(6,), (7, 19, 56), (None,), (20, None, 5)], ids=str)
def test_a_batch_is_sent_again_under_its_own_sequence(trouble: tuple[int | None, ...]) -> None:
    with _scripted(0, *trouble) as log:
        _written(log, 3)
        assert log.taken == [(1, 0, 2), (1, 2, 2), (1, 4, 2)]


def test_a_repeat_that_the_log_knows_counts_as_written() -> None:
    with _scripted(0, 46) as log:
        _written(log, 3)
        assert log.taken == [(1, 0, 2), (1, 4, 2)]


@pytest.mark.parametrize("code", [45, 59, 47])
def test_a_log_that_lost_the_producer_is_given_a_new_one(code: int) -> None:
    with _scripted(0, code) as log:
        _written(log, 3)
        assert log.taken == [(1, 0, 2), (2, 0, 2), (2, 2, 2)]


def test_what_the_log_refuses_for_good_is_told() -> None:
    with _scripted(29) as log, closing(LogWriter(log.address)) as writer:
        _put(writer, TopicPartition("out", 0), [b"x"])
        with pytest.raises(PipelineError, match="out/0: topic_authorization_failed"):
            writer.settle()
