"""TLS and SASL for other Kafka clusters: the keys in a pipeline's file, and the settings of clients for them.

Java's producer writes the records (KIP-651 for certificates as text), librdkafka is used for requests of the driver.
Must stay cheap to import, because `pipeline check` imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec

from logboom.base.settings import Settings
from logboom.pipeline.plan.nodes import KeyRef
from logboom.pipeline.sinks.base import SinkReport

Mechanism = Literal["plain", "scram-sha-256", "scram-sha-512"]
_SECURITY: Final = "org.apache.kafka.common.security"


class TlsModel(Settings):
    """TLS; `{}` trusts what the system does."""

    ca_file: str | None = None
    """Certificates (PEM) to trust instead of the system's."""

    certificate_file: str | None = None
    """The client's certificate with its chain (PEM), if brokers require one."""

    key_file: str | None = None
    """Its key (PEM, PKCS #8, without a password)."""


class SaslModel(Settings):
    """A user and a password."""

    mechanism: Mechanism = "scram-sha-512"
    user: str
    password_env: str | None = None
    password_file: str | None = None


class KafkaSecurity(msgspec.Struct, frozen=True, kw_only=True):
    """How to connect to brokers that require TLS or authentication."""

    tls: bool = False
    ca: KeyRef | None = None
    certificate: KeyRef | None = None
    key: KeyRef | None = None
    mechanism: Mechanism | None = None
    user: str = ""
    password: KeyRef | None = None

    @property
    def secret_refs(self) -> tuple[tuple[str, KeyRef], ...]:
        """Its credentials, by their keys in the file."""
        named = (
            ("tls.ca_file", self.ca),
            ("tls.certificate_file", self.certificate),
            ("tls.key_file", self.key),
            ("sasl.password", self.password),
        )
        return tuple((key, ref) for key, ref in named if ref is not None)

    @property
    def protocol(self) -> str:
        """The `security.protocol` of Kafka's clients."""
        if self.mechanism is None:
            return "SSL"
        return "SASL_SSL" if self.tls else "SASL_PLAINTEXT"


def security_of(tls: TlsModel | None, sasl: SaslModel | None, report: SinkReport) -> KafkaSecurity | msgspec.UnsetType:
    """The values of the sink's keys `tls` and `sasl`. Problems are reported."""
    if tls is None and sasl is None:
        return msgspec.UNSET
    if tls is not None and (tls.certificate_file is None) != (tls.key_file is None):
        report.problem("tls", "needs certificate_file and key_file together")
    if sasl is not None and (sasl.password_env is None) == (sasl.password_file is None):
        report.problem("sasl", "needs the password in one of password_env and password_file")
    if sasl is not None and tls is None and sasl.mechanism == "plain":
        report.problem("sasl", "with the mechanism plain sends the password as it is; add tls")
    files = TlsModel() if tls is None else tls
    password = None
    if sasl is not None:
        by_file = sasl.password_env is None
        password = KeyRef(file=sasl.password_file) if by_file else KeyRef(env=sasl.password_env)
    return KafkaSecurity(
        tls=tls is not None,
        ca=_file(files.ca_file),
        certificate=_file(files.certificate_file),
        key=_file(files.key_file),
        mechanism=None if sasl is None else sasl.mechanism,
        user="" if sasl is None else sasl.user,
        password=password,
    )


def _file(name: str | None) -> KeyRef | None:
    return None if name is None else KeyRef(file=name)


def java_settings(security: KafkaSecurity, text: Callable[[KeyRef], str]) -> dict[str, str]:
    """Settings for Java clients. `text` returns the text of a credential."""
    found = {"security.protocol": security.protocol}
    if security.ca is not None:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": text(security.ca)}
    if security.certificate is not None and security.key is not None:
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": text(security.certificate),
            "ssl.keystore.key": text(security.key),
        }
    if security.mechanism is not None and security.password is not None:
        module = "plain.PlainLoginModule" if security.mechanism == "plain" else "scram.ScramLoginModule"
        user, password = _quoted(security.user), _quoted(text(security.password))
        found["sasl.mechanism"] = security.mechanism.upper()
        found["sasl.jaas.config"] = f"{_SECURITY}.{module} required username={user} password={password};"
    return found


def librdkafka_settings(security: KafkaSecurity, text: Callable[[KeyRef], str]) -> dict[str, str]:
    """The same for librdkafka clients."""
    found = {"security.protocol": security.protocol}
    for name, ref in (
        ("ssl.ca.pem", security.ca),
        ("ssl.certificate.pem", security.certificate),
        ("ssl.key.pem", security.key),
    ):
        if ref is not None:
            found[name] = text(ref)
    if security.mechanism is not None and security.password is not None:
        found["sasl.mechanism"] = security.mechanism.upper()
        found["sasl.username"] = security.user
        found["sasl.password"] = text(security.password)
    return found


def _quoted(text: str) -> str:
    """Quote a value of a JAAS configuration."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def spark_options(settings: Mapping[str, str]) -> dict[str, str]:
    """Client settings in the form of Spark's Kafka connector."""
    return {f"kafka.{name}": value for name, value in settings.items()}
