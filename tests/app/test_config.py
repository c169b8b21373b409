"""A node's configuration: one model, three sources, and the name of the source in every problem."""

import pytest

from logboom.app.config import LogLevel, NodeConfig, load_node_config
from logboom.base.settings import SettingsError, parse_yaml

FILE = """\
kafka:
  listen: 127.0.0.1:1111
  max_connections: 10
broker:
  data_dir: from-file
http: {listen: null}
"""


def test_flags_win_over_environment_and_environment_over_file() -> None:
    config = load_node_config(
        parse_yaml(FILE, "logboom.yaml"),
        {"LOGBOOM_KAFKA__LISTEN": "127.0.0.1:2222", "LOGBOOM_BROKER__DATA_DIR": "from-environment"},
        {"broker.data_dir": "from-flag", "http.listen": None},
    )
    assert config.kafka.listen == "127.0.0.1:2222"
    assert config.kafka.max_connections == 10
    assert str(config.broker.data_dir) == "from-flag"
    assert config.http.listen is None


def test_text_of_environment_and_flags_becomes_what_the_setting_is() -> None:
    environment = {
        "LOGBOOM_BROKER__AUTO_CREATE_STREAMS": "false",
        "LOGBOOM_BROKER__STREAM_DEFAULTS__SEGMENT_MS": "12h",
        "LOGBOOM_HTTP__LISTEN": "null",
        "LOGBOOM_LOG__LEVEL": "debug",
        "LOGBOOM_BOOTSTRAP": "a client's variable, no setting of a node",
    }
    config = load_node_config(None, environment, {"kafka.max_request_bytes": "1MiB"})
    assert config.broker.auto_create_streams is False
    assert config.broker.stream_defaults.segment_ms == 43_200_000
    assert config.http.listen is None
    assert config.log.level is LogLevel.DEBUG
    assert config.kafka.max_request_bytes == 2**20


def test_problems_of_all_sources_are_told_at_once_and_each_names_its_own() -> None:
    file = parse_yaml("kafka:\n  listen: nowhere\n  max_conections: 3\n", "logboom.yaml")
    environment = {"LOGBOOM_KAFKA__MAX_CONNECTIONS": "many", "LOGBOOM_BROKR__X": "1"}
    with pytest.raises(SettingsError) as caught:
        load_node_config(file, environment, {"kafka.idle_timeout_s": "1 fortnight"})
    assert set(str(caught.value).splitlines()) == {
        "logboom.yaml:2: kafka.listen: 'nowhere' is not an address such as 127.0.0.1:9092",
        "logboom.yaml:3: kafka.max_conections: unknown key 'max_conections' (did you mean 'max_connections'?)",
        "environment variable LOGBOOM_KAFKA__MAX_CONNECTIONS: should be a whole number, got 'many'",
        "environment variable LOGBOOM_BROKR__X: unknown key 'brokr' (did you mean 'broker'?)",
        "flag for kafka.idle_timeout_s: '1 fortnight' is not a duration such as 250ms, 30s, 15m, 12h or 7d",
    }


def test_empty_file_is_all_defaults() -> None:
    assert load_node_config(parse_yaml("# nothing\n", "logboom.yaml"), {}, {}) == NodeConfig()


def test_file_that_is_no_group_of_settings_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"logboom.yaml:1: should be a group of keys and values"):
        load_node_config(parse_yaml("- a\n", "logboom.yaml"), {}, {})


def test_configuration_of_one_node_does_not_reach_into_the_next() -> None:
    file = parse_yaml(FILE, "logboom.yaml")
    load_node_config(file, {}, {"kafka.max_connections": "20"})
    assert load_node_config(file, {}, {}).kafka.max_connections == 10
