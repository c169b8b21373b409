"""What `collector.yaml` may say, and what is said when it may not."""

import pytest

from logboom.base.settings import SettingsError, load, parse_yaml
from logboom.collector.config import CollectorConfig, FileInputConfig, WhenFull

GOOD = """
data_dir: ./state
host: web-1
output:
  bootstrap: a:9092,b:9092
  stream: logs
  librdkafka: {compression.type: lz4, linger.ms: 5}
inputs:
  app:
    type: file
    include: ["/var/log/app/*.log"]
    exclude: ["*.tmp"]
    start_at: end
    multiline: {start: '^\\d{4}-', idle_timeout_ms: 2s}
  pipe: {type: stdin, stream: piped}
  syslog: {type: unix_datagram, path: /run/s.sock, buffer: {max_bytes: 64MiB, when_full: drop_newest}}
  lines: {type: unix_stream, path: /run/l.sock, framing: octet_counted, mode: "0666"}
http: 127.0.0.1:9600
"""


def read(text: str) -> CollectorConfig:
    return load(CollectorConfig, parse_yaml(text, "c.yaml"))


def problems(text: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read(text)
    return str(caught.value).splitlines()


def test_a_whole_configuration() -> None:
    config = read(GOOD)
    assert config.stream_of("app") == "logs"
    assert config.stream_of("pipe") == "piped"
    app = config.inputs["app"]
    assert isinstance(app, FileInputConfig)
    assert app.multiline is not None
    assert app.multiline.rule().idle_timeout_ms == 2000
    syslog = config.inputs["syslog"]
    assert syslog.type == "unix_datagram"
    assert (syslog.buffer.max_bytes, syslog.buffer.when_full) == (64 << 20, WhenFull.DROP_NEWEST)


def test_all_errors_come_at_once_with_their_lines() -> None:
    said = problems(
        """
output: {stream: logs, librdkafka: {acks: 1}}
inputs:
  app: {type: file, includ: [x], start_at: middle}
  sock: {type: unix_stream, path: /a, mode: "rw"}
  odd: {type: syslogd}
  deep: {type: file, include: [a], multiline: {start: "("}}
"""
    )
    text = "\n".join(said)
    assert "c.yaml:2: output.librdkafka: acks cannot be set here: every record waits for its commit" in text
    assert "c.yaml:4: inputs.app.includ: unknown key 'includ' (did you mean 'include'?)" in text
    assert "c.yaml:4: inputs.app: key 'include' is missing" in text
    assert "c.yaml:4: inputs.app.start_at" in text
    assert "c.yaml:5: inputs.sock.mode" in text
    assert "c.yaml:6: inputs.odd" in text
    assert "c.yaml:7: inputs.deep.multiline.start: is not a valid regular expression" in text
    assert len(said) == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("inputs: {}", "is empty; give it at least one"),
        ("inputs: {a: {type: stdin}}", "no stream for a: set stream there, or output.stream for all"),
        ("output: {stream: 'no spaces'}\ninputs: {a: {type: stdin}}", "is not a valid name for a stream"),
        ("inputs: {a b: {type: stdin, stream: s}}", "'a b' is not a valid name for an input"),
        ("inputs: {a: {type: stdin, stream: s}, b: {type: stdin, stream: s}}", "one standard input"),
        (
            "inputs: {a: {type: unix_stream, path: /x, stream: s}, b: {type: unix_datagram, path: /x, stream: s}}",
            "two inputs cannot share the socket /x",
        ),
        ("inputs: {a: {type: unix_datagram, path: /x, stream: s, multiline: {start: x}}}", "not for datagrams"),
        ("inputs: {a: {type: stdin, stream: s, max_line_bytes: 2MB}}", "should be at most "),
    ],
)
def test_contradicting_settings_are_errors(text: str, message: str) -> None:
    assert message in "\n".join(problems(text))
