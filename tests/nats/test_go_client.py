"""A publisher that uses nats.go, the client of the NATS project."""

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.nats.servers import attach, end, needs_nats_server, on_a_loop, taken
from tests.support.server import BrokerProcess

import nats

pytestmark = [
    pytest.mark.slow,
    pytest.mark.clients,
    needs_nats_server,
    pytest.mark.skipif(shutil.which("go") is None, reason="no Go here to build the client with"),
]

SOURCE = Path(__file__).parent / "go"


@on_a_loop
async def test_nats_go_publishes_to_a_stream(broker: BrokerProcess, tmp_path: Path) -> None:
    program = tmp_path / "publisher"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=SOURCE, check=True, timeout=240)
    attach(broker.kafka, "from-go", "from.go")
    url = str(broker.ready["nats"])
    client = await nats.connect(url)
    await taken(client, "from.go")
    await client.close()
    said = subprocess.run([program, url, "from.go"], check=True, capture_output=True, text=True, timeout=60).stdout
    assert said.splitlines() == [
        "from-go 2 false",
        "from-go 2 true",
        "nats: wrong last sequence: 2",
        "nats: expected stream does not match",
        "from-go 2003 false",
    ]
    assert end(broker.kafka, "from-go") == 2003
