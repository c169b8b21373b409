"""The sink `stream` on brokers that ask for TLS and a user: a real Kafka."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.pipeline.support import needs_java, records
from tests.pipeline_sinks.harness import EDGE, Letters, event, sink_of
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S

from logboom.bench.servers.kafka import KafkaServer
from logboom.bench.servers.process import UnavailableError, free_port
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.nodes import KeyRef
from logboom.pipeline.sinks.base import SinkContext
from logboom.pipeline.sinks.registry import type_of

pytestmark = [pytest.mark.spark, needs_java, pytest.mark.slow]

PASSWORD = 's3cr3t-"pass\\word'
_LOGIN = "org.apache.kafka.common.security"


class SecuredKafka(KafkaServer):
    """One with a second listener, which asks for TLS and a user."""

    def __init__(self, directory: Path) -> None:
        self.secured = f"localhost:{free_port()}"
        self.certificate = directory / "cert.pem"
        controller = free_port()
        super().__init__(directory, controller_port=controller)
        key = directory / "key.pem"
        directory.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"),
                *("-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(self.certificate)),
            ],
            check=True,
            capture_output=True,
            timeout=WAIT_S,
        )
        store = directory / "store.pem"
        store.write_text(key.read_text() + self.certificate.read_text())
        password = PASSWORD.replace("\\", "\\\\\\\\").replace('"', '\\\\"')
        listener = "listener.name.sasl_ssl."
        self._ours |= {
            "listeners": f"PLAINTEXT://{self.address},SASL_SSL://{self.secured},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address},SASL_SSL://{self.secured}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
            f"{listener}ssl.keystore.type": "PEM",
            f"{listener}ssl.keystore.location": str(store),
            f"{listener}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            f"{listener}plain.sasl.jaas.config": f'{_LOGIN}.plain.PlainLoginModule required user_shop="{password}";',
            f"{listener}scram-sha-512.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
        }


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    server = SecuredKafka(tmp_path_factory.mktemp("kafka"))
    with skipped_on(UnavailableError):
        server.prepare()
    try:
        server.start()
        admin = AdminClient({"bootstrap.servers": server.address})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion("shop", info, PASSWORD.encode())
        admin.alter_user_scram_credentials([change])["shop"].result(WAIT_S)
        for name in ("plain", "scram-sha-512"):
            admin.create_topics([NewTopic(name, 1)])[name].result(WAIT_S)
        yield server
    finally:
        server.kill9()


def _context(tmp_path: Path, kafka: SecuredKafka, password: str) -> SinkContext:
    letters = Letters()

    def secret(ref: KeyRef) -> str:
        return kafka.certificate.read_text() if ref.file is not None else password

    return SinkContext(
        resolve=tmp_path.joinpath,
        checkpoint=tmp_path,
        notify=print,
        write_dead_letters=letters,
        letters=letters,
        secret=secret,
    )


@pytest.mark.parametrize("mechanism", ["plain", "scram-sha-512"])
def test_events_reach_brokers_that_ask_for_tls_and_a_user(
    spark: Any, kafka: SecuredKafka, tmp_path: Path, mechanism: str
) -> None:
    (tmp_path / "ca.pem").write_text(kafka.certificate.read_text())
    keys = (
        f"type: stream, stream: {mechanism}, bootstrap: '{kafka.secured}', tls: {{ca_file: {tmp_path / 'ca.pem'}}}, "
        f"sasl: {{mechanism: {mechanism}, user: shop, password_env: PW}}"
    )
    sink = sink_of(keys)
    kind = type_of(sink)
    values = [(EDGE, 0, number, None, bytearray(json.dumps(event(number)).encode())) for number in range(50)]
    rows = spark.createDataFrame(values, "topic string, partition int, offset bigint, key binary, value binary")
    assert kind.connect is not None
    kind.connect(sink, _context(tmp_path, kafka, PASSWORD))
    writer = kind.open(sink, _context(tmp_path, kafka, PASSWORD))
    assert writer.deliver(rows, 0).rows == 50
    found = [json.loads(record.value())["event_id"] for record in records(kafka.address, mechanism)]
    assert sorted(found) == sorted(f"web:0:{number}" for number in range(50))
    wrong = _context(tmp_path, kafka, "wrong-password")
    with pytest.raises(PipelineError, match="or none accepts the credential"):
        kind.connect(sink, wrong)
    with pytest.raises(PipelineError) as refused:
        kind.open(sink, wrong).deliver(rows, 1)
    assert "wrong-password" not in str(refused.value)
    untrusted = replace(wrong, secret=lambda ref: PASSWORD)
    bare = sink_of(keys.replace(f"tls: {{ca_file: {tmp_path / 'ca.pem'}}}", "tls: {}"))
    with pytest.raises(PipelineError):
        kind.open(bare, untrusted).deliver(rows, 2)
    assert len(records(kafka.address, mechanism)) == 50
