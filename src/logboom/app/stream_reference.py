"""The part of docs/configuration.md about the settings of streams: Kafka's topic settings, all of them.

Written from the one table of `logboom.metadata`.
"""

from collections.abc import Iterator
from typing import Final

from logboom.metadata import STREAM_SETTINGS, StreamSetting, refused_settings

_INTRODUCTION: Final = """\
## Streams

A stream's own settings override the broker's `broker.stream_defaults`. `logboom streams create NAME --config KEY=VALUE`
and `logboom streams alter` set them, and so do Kafka's tools (`kafka-topics --config`, `kafka-configs --entity-type
topics`); all take effect while the broker runs. The names are Kafka's, and every topic setting of Kafka 4.1 is in one
of the three tables.

### Settings that work as in Kafka

Those under `logboom.` are Logboom's own.
"""
_WITHOUT_EFFECT: Final = """\
### Settings without effect

They are checked and stored, so that tools and scripts which set them work; DescribeConfigs shows the same text.
"""
_REFUSED: Final = """\
### Settings that are refused

INVALID_CONFIG, with the reason:
"""


def stream_settings() -> str:
    """The section as Markdown."""
    effective = [setting for setting in STREAM_SETTINGS if setting.acts]
    without_effect = [setting for setting in STREAM_SETTINGS if not setting.acts]
    lines = [_INTRODUCTION, *_table(effective), "", _WITHOUT_EFFECT, *_table(without_effect), "", _REFUSED]
    lines += ["| setting | why |", "|---|---|"]
    lines += [f"| `{name}` | {_sentence(why)} |" for name, why in refused_settings().items()]
    return "\n".join(lines)


def _table(settings: list[StreamSetting]) -> Iterator[str]:
    yield "| setting | value | default | what it does |"
    yield "|---|---|---|---|"
    for one in settings:
        default = f"`{one.default}`" if one.default else "none"
        yield f"| `{one.name}` | {one.rule.expected} | {default} | {one.doc} |"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
