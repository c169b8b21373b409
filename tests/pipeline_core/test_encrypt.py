"""The transform `encrypt` and its way back: what is sealed, by whom it can be read, and what is never there."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from logboom.base.settings import SettingsError
from logboom.cli.pipeline import pipeline
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.event.schema import EVENT_SCHEMA
from logboom.pipeline.execute.stages import conform
from logboom.pipeline.plan.nodes import Plan
from logboom.pipeline.registry import read_plan
from logboom.pipeline.seal.cipher import SEALED, Cipher
from logboom.pipeline.seal.reading import Opener
from logboom.pipeline.transforms.encrypt import EncryptTransform

KEY = b"a key of sixteen bytes and more"
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=6,
)


def compiled(**keys: Any) -> Plan:
    keys = {"fields": ["attributes.user.email", "body"], "key_name": "pii", "key_env": "PII_KEY", **keys}
    document = {
        "name": "tests",
        "sources": {"s": {"type": "stream", "stream": "web"}},
        "transforms": {
            "parsed": {"type": "parse", "inputs": ["s"], "rules": [{"format": "json"}]},
            "sealed": {"type": "encrypt", "inputs": ["parsed"], **keys},
        },
        "sinks": {"out": {"type": "console", "inputs": ["sealed"]}},
    }
    return compile_pipeline(json.dumps(document), "test.yaml")


def sealed(*events: tuple[str | None, Any]) -> list[dict[str, Any]]:
    """Events of a body and attributes, numbered, behind the transform."""
    plan = compiled()
    assert read_plan(plan.to_json()) == plan
    node = plan.transforms[1]
    assert isinstance(node, EncryptTransform)
    rows = [
        {"event_id": f"web:0:{number}", "body": body, "attributes": None if tree is None else json.dumps(tree)}
        for number, (body, tree) in enumerate(events)
    ]
    batch = conform(pa.RecordBatch.from_pylist(rows, schema=EVENT_SCHEMA), EVENT_SCHEMA)
    found: list[dict[str, Any]] = node.run(batch, {"env:PII_KEY": KEY}).to_pylist()
    for row in found:
        row["attributes"] = None if row["attributes"] is None else json.loads(row["attributes"])
    return found


def opened(tree: Any) -> Any:
    return json.loads(Opener({"pii": Cipher("pii", KEY)}).line(json.dumps(tree).encode()))


def test_every_spelling_is_sealed_and_comes_back() -> None:
    tree = {"user.email": "a@b.c", "user": {"email": {"x": [1]}, "id": 7}, "n": 1}
    first, again, bare, dead = sealed(("hello", tree), ("hello", tree), (None, {"user": {"email": None}}), (None, None))
    for row in (first, again):
        assert all(
            SEALED.fullmatch(text)
            for text in (row["body"], row["attributes"]["user.email"], row["attributes"]["user"]["email"])
        )
        assert opened(row["attributes"]) == tree
        assert opened([row["body"]]) == ["hello"]
    assert (
        len({first["body"], again["body"], first["attributes"]["user.email"], again["attributes"]["user.email"]}) == 4
    )
    assert (bare["body"], bare["attributes"], dead["attributes"]) == (None, {"user": {"email": None}}, None)


def test_a_batch_that_is_done_again_gives_the_same() -> None:
    events = [(f"body {number}", {"user.email": "x"}) for number in range(20)]
    assert sealed(*events) == sealed(*events)


@given(JSON, st.binary())
def test_what_is_sealed_can_be_opened(value: Any, place: bytes) -> None:
    cipher = Cipher("pii", KEY)
    text = cipher.seal(value, place)
    assert cipher.open(text) == value
    assert SEALED.fullmatch(text)


@given(st.data())
def test_what_was_changed_is_not_opened(data: st.DataObject) -> None:
    cipher = Cipher("pii", KEY)
    text = cipher.seal("secret", b"place")
    at = data.draw(st.integers(len("enc:v1:pii:"), len(text) - 2))
    other = data.draw(st.sampled_from("ABCDabcd0123-_").filter(lambda letter: letter != text[at]))
    with pytest.raises(ValueError, match="it was changed, or sealed under another key"):
        cipher.open(text[:at] + other + text[at + 1 :])


def test_another_key_or_name_opens_nothing() -> None:
    text = Cipher("pii", KEY).seal("secret", b"place")
    opener = Opener({"pii": Cipher("pii", KEY[::-1])})
    assert opener.line(json.dumps([text, "x"]).encode()) == json.dumps([text, "x"]).encode()
    assert (opener.opened, opener.failed) == (0, 1)
    opener = Opener({"other": Cipher("other", KEY)})
    opener.line(json.dumps({"a": text}).encode())
    assert (opener.failed, opener.unknown) == (0, {"pii"})
    with pytest.raises(ValueError, match="not sealed under this key"):
        Cipher("other", KEY).open(text.replace(":pii:", ":other2:"))


def test_the_command_opens_lines(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY + b"\n")
    text = Cipher("pii", KEY).seal({"n": 1}, b"place")
    lines = json.dumps({"a": [text], "b": 1}) + "\nno json\n" + json.dumps(text[:-4] + "AAAA") + "\n"
    done = CliRunner().invoke(pipeline, ["decrypt", "--key", f"pii=file:{tmp_path / 'key'}"], input=lines)
    assert done.exit_code == 1
    assert done.stdout.splitlines()[:2] == ['{"a":[{"n":1}],"b":1}', "no json"]
    assert "1 value could not be decrypted" in str(done.exception)
    done = CliRunner().invoke(pipeline, ["decrypt", "--key", "pii"], input="")
    assert "write it as NAME=env:VARIABLE or NAME=file:PATH" in str(done.exception)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"fields": ["time"]}, "unknown field 'time'"),
        ({"key_file": "x"}, "needs one of key_env and key_file"),
        ({"key_name": "a b"}, "should be letters"),
    ],
)
def test_faults_of_a_file(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        compiled(**keys)
    assert message in str(caught.value)
