"""The table of stream settings: each is declared once, its values are read as Kafka reads them, none is ignored."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.base.errors import InvalidConfigError
from logboom.metadata import (
    DEFAULT_STREAM_CONFIG,
    STREAM_SETTINGS,
    StreamSetting,
    refused_settings,
    stream_setting,
)

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


@pytest.mark.parametrize("setting", STREAM_SETTINGS, ids=lambda setting: setting.name)
def test_a_default_is_valid_and_reads_back_as_itself(setting: StreamSetting) -> None:
    assert setting.rule.parse(setting.default) == setting.default_value
    assert setting.text_in_force(DEFAULT_STREAM_CONFIG, {}) == setting.default
    config = DEFAULT_STREAM_CONFIG.with_overrides({setting.name: setting.default})
    assert config == DEFAULT_STREAM_CONFIG


@given(st.sampled_from(STREAM_SETTINGS), st.one_of(st.text(max_size=30), st.integers().map(str), st.floats().map(str)))
def test_any_text_is_a_value_or_an_error_that_names_the_setting(setting: StreamSetting, text: str) -> None:
    try:
        value = setting.rule.parse(text)
    except ValueError:
        with pytest.raises(InvalidConfigError) as refused:
            setting.parse(text)
        assert str(refused.value).startswith(f"{setting.name}={text!r}: expected {setting.rule.expected}")
        return
    overrides = {setting.name: text}
    config = DEFAULT_STREAM_CONFIG.with_overrides(overrides)
    shown = setting.text_in_force(config, overrides)
    assert setting.parse(shown) == value, "what DescribeConfigs shows can be set again"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("compression.gzip.level", "-1", -1),
        ("compression.type", "uncompressed", "uncompressed"),
        ("cleanup.policy", "compact, delete", "compact,delete"),
        ("cleanup.policy", "", ""),
        ("unclean.leader.election.enable", "TRUE", True),
        ("leader.replication.throttled.replicas", "0:1, 1:1", "0:1,1:1"),
        ("follower.replication.throttled.replicas", "*", "*"),
        ("local.retention.ms", "-2", -2),
        ("remote.storage.enable", "false", False),
        ("message.timestamp.before.max.ms", "9223372036854775807", 2**63 - 1),
    ],
)
def test_values_are_read_as_kafka_reads_them(name: str, text: str, value: object) -> None:
    assert stream_setting(name).parse(text) == value


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("compression.gzip.level", "0", "from 1 to 9, or -1"),
        ("compression.type", "brotli", "producer or uncompressed"),
        ("remote.storage.enable", "true", "there is no tiered storage"),
        ("leader.replication.throttled.replicas", "0", "partition:broker"),
        ("index.interval.bytes", "-1", "from 0"),
        ("cleanup.policy", "shrink", "delete, compact, several of them or none"),
    ],
)
def test_other_values_are_refused_with_what_is_expected(name: str, text: str, reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        stream_setting(name).parse(text)


def test_a_name_that_is_refused_says_why() -> None:
    with pytest.raises(InvalidConfigError, match=r"message\.downconversion\.enable is refused: Kafka 4\.0 removed it"):
        stream_setting("message.downconversion.enable")
    with pytest.raises(InvalidConfigError, match=r"did you mean 'retention\.ms'"):
        stream_setting("retension.ms")


def test_the_page_has_every_setting() -> None:
    page = PAGE.read_text()
    for name in [*(setting.name for setting in STREAM_SETTINGS), *refused_settings()]:
        assert f"| `{name}` |" in page
