"""The program of docs/nats.md that copies a stream of JetStream."""

import subprocess
import sys
from pathlib import Path

import pytest
from nats.js.api import StreamConfig
from tests.docs.blocks import blocks_of
from tests.nats.servers import NatsServer, alter, attach, end, needs_nats_server, on_a_loop, stored
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S

import nats

pytestmark = needs_nats_server

PAGE = Path(__file__).parents[2] / "docs" / "nats.md"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    found = next(block for block in blocks_of(PAGE) if block.file == "copy_from_jetstream.py")
    (tmp_path / "copy_from_jetstream.py").write_text(found.text)
    return tmp_path / "copy_from_jetstream.py"


@on_a_loop
async def test_a_stream_of_jetstream_is_copied_and_goes_on(tmp_path: Path, program: Path) -> None:
    """In two goes, with subjects, headers and ids; a retry of what was copied is a duplicate."""
    with (
        NatsServer(tmp_path, "jetstream {", f'store_dir: "{tmp_path / "jetstream"}"', "}") as server,
        BrokerProcess(tmp_path / "data", "--nats", server.url) as broker,
    ):
        async with await nats.connect(server.url) as client:
            jetstream = client.jetstream(timeout=WAIT_S)
            await jetstream.add_stream(StreamConfig(name="OLD", subjects=["parcels.>"]))
            attach(broker.kafka, "parcels", "")

            def copied(after: str) -> str:
                command = [sys.executable, str(program), server.url, "OLD", broker.kafka, "parcels", after]
                done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
                assert done.returncode == 0, done.stderr
                return done.stdout.strip()

            for number in range(30):
                headers = {"Nats-Msg-Id": f"id-{number}", "Weight": str(number)}
                await jetstream.publish(f"parcels.{number}", b"%d" % number, headers=headers)
            first = copied("0")
            await jetstream.publish("parcels.late", b"late", headers={"Nats-Msg-Id": "late"})
            await jetstream.update_stream(StreamConfig(name="OLD", subjects=["retired"]))
            assert (first, copied(first), copied("31")) == ("30", "31", "31")
            alter(broker.kafka, "parcels", "logboom.nats.subjects", "parcels.>")
            ack = None
            while ack is None:  # the broker subscribes a moment later
                try:
                    ack = await jetstream.publish("parcels.late", b"late", headers={"Nats-Msg-Id": "late"})
                except nats.js.errors.NoStreamResponseError:
                    continue
            new = await jetstream.publish("parcels.new", b"new", headers={"Nats-Msg-Id": "new"})
        assert (ack.stream, ack.seq, ack.duplicate) == ("parcels", 31, True)
        assert new.seq == 32
        records = stored(broker.kafka, "parcels", 32)
        assert [one.value for one in records] == [*(b"%d" % number for number in range(30)), b"late", b"new"]
        assert records[7].header("Weight") == [b"7"]
        assert records[7].header("logboom-subject") == [b"parcels.7"]
        assert end(broker.kafka, "parcels") == 32
