"""The keys of the sink `stream`; what those for TLS and SASL become for Java's and librdkafka's clients."""

from __future__ import annotations

import pytest
from tests.pipeline_sinks.harness import pipeline_of, sink_of

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.sinks.kafka_security import java_settings, librdkafka_settings

KEYS = "type: stream, stream: there, bootstrap: 'kafka.example.com:9093'"


def test_a_user_over_tls_with_a_certificate_of_the_clients_own() -> None:
    sink = sink_of(
        f"{KEYS}, tls: {{ca_file: ca, certificate_file: cert, key_file: key}}, "
        "sasl: {mechanism: scram-sha-256, user: 'a\"b', password_env: PW}"
    )
    texts = {"file:ca": "CA", "file:cert": "CERT", "file:key": "KEY", "env:PW": 'p\\w"'}
    assert {ref.id for _, ref in sink.secret_refs} == set(texts)
    java = java_settings(sink.security, lambda ref: texts[ref.id])
    assert java == {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "CA",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "CERT",
        "ssl.keystore.key": "KEY",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="a\\"b" password="p\\\\w\\"";',
    }
    assert librdkafka_settings(sink.security, lambda ref: texts[ref.id]) == {
        "security.protocol": "SASL_SSL",
        "ssl.ca.pem": "CA",
        "ssl.certificate.pem": "CERT",
        "ssl.key.pem": "KEY",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": 'a"b',
        "sasl.password": 'p\\w"',
    }


def test_tls_alone_trusts_what_the_system_does() -> None:
    sink = sink_of(f"{KEYS}, tls: {{}}")
    assert java_settings(sink.security, lambda ref: "") == {"security.protocol": "SSL"}
    assert sink.secret_refs == ()
    assert sink_of(KEYS).secret_refs == ()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("type: stream, stream: here, tls: {}", "goes with bootstrap"),
        ("type: stream, stream: here, key: offset", "unknown text column 'offset'"),
        ("type: stream, stream: here, key: attributes.", "unknown text column 'attributes.'"),
        (f"{KEYS}, tls: {{certificate_file: c}}", "needs certificate_file and key_file together"),
        (f"{KEYS}, sasl: {{user: u}}", "needs the password in one of"),
        (f"{KEYS}, sasl: {{user: u, password_env: PW, mechanism: plain}}", "sends the password as it is; add tls"),
        (f"{KEYS}, tls: {{ca_file: nowhere.pem}}", "the credential cannot be read from nowhere.pem"),
    ],
)
def test_what_is_wrong_with_its_keys_is_told(keys: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        compile_pipeline(pipeline_of(keys), "p.yaml", environ={})
    assert words in str(caught.value)
