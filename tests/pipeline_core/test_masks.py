"""Masks: what is found, what is not, what stands there afterwards, and what never changes."""

import hmac
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.pipeline_core.batches import KEYS, mask, parser, raw

from logboom.pipeline.mask.columns import rows_with_digit_runs
from logboom.pipeline.mask.detect import SECRET_KEY, detector_for, luhn
from logboom.pipeline.mask.keys import MaskKeyError, load_keys
from logboom.pipeline.mask.replace import keep_last
from logboom.pipeline.mask.rules import MaskRule
from logboom.pipeline.plan.nodes import KeyRef
from logboom.pipeline.transforms.mask import MaskTransform

KINDS = ("email", "ipv4", "ipv6", "card", "token")
ACTIONS = ("hash", "redact", "keep_last")


def rule(kind: str, action: str = "redact", **options: Any) -> MaskRule:
    return mask({"kind": kind, "action": action, **options}).rules[0]


def finds(kind: str, text: str) -> list[str]:
    data = text.encode()
    return [data[start:end].decode() for start, end in detector_for(rule(kind)).find(data)]


def masked(
    transform: MaskTransform, *bodies: str | None, attributes: Mapping[str, Any] | None = None
) -> tuple[list[str | None], list[str], list[int]]:
    """Bodies, attributes as text and the sum of all counts by row."""
    batch = pa.RecordBatch.from_pydict(
        {
            "body": pa.array(bodies, pa.string()),
            "attributes": pa.array([msgspec.json.encode(attributes or {}).decode()] * len(bodies), pa.string()),
        }
    )
    out = transform.run(batch, KEYS)
    counts = [out.column(f"masked_{label}").to_pylist() for label in transform.mask_labels]
    return (
        out.column("body").to_pylist(),
        out.column("attributes").to_pylist(),
        [sum(row) for row in zip(*counts, strict=True)],
    )


# --- what is found ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        (
            "email",
            "from bob.smith+tag@mail.example.co.uk, to <Al@EXAMPLE.com>.",
            ["bob.smith+tag@mail.example.co.uk", "Al@EXAMPLE.com"],
        ),
        (
            "email",
            "q=bob%40example.com&x=1 jürgen@exämple.de 用户@例子.广告",
            ["bob%40example.com", "jürgen@exämple.de", "用户@例子.广告"],
        ),
        ("email", "@home user@localhost a@b a @ b.co git@ x", []),
        ("ipv4", "from 10.0.0.1:80, 255.255.255.255/32 and 1.2.3.4.", ["10.0.0.1", "255.255.255.255", "1.2.3.4"]),
        ("ipv4", "256.1.1.1 1.2.3 1.2.3.4.5 1.2.3.1000 1..2.3.4", []),
        (
            "ipv6",
            "[2001:db8::1]:443 ::1 fe80::1%eth0 1:2:3:4:5:6:7:8",
            ["2001:db8::1", "::1", "fe80::1", "1:2:3:4:5:6:7:8"],
        ),
        ("ipv6", "::ffff:10.0.0.1 0:0:0:0:0:0:0:0:2181", ["::ffff:10.0.0.1", "0:0:0:0:0:0:0:0"]),
        ("ipv6", "12:34:56 aa:bb:cc:dd:ee:ff std::vector foo::bar Foo::1a :: a:1 {a:1,b:2}", []),
        (
            "card",
            "4111111111111111 4111-1111-1111-1111 4111 1111 1111 1111",
            ["4111111111111111", "4111-1111-1111-1111", "4111 1111 1111 1111"],
        ),
        (
            "card",
            "amex 3782 822463 10005, visa 13: 4222222222222, 19: 6304000000000000000",
            ["3782 822463 10005", "4222222222222", "6304000000000000000"],
        ),
        ("ipv6", "SHA1 aa:bb:cc:dd:ee:ff:00:11:22:33:44:55 1:2:3:4:5:6:7:8:9:10 1:2:3:4:5:6:7", []),
        ("ipv6", "1:2:3:4:5:6:10.0.0.1 2001:db8:: fe80::a.", ["1:2:3:4:5:6:10.0.0.1", "2001:db8::", "fe80::a"]),
        ("card", "order 12 4111 1111 1111 1111 99", ["4111 1111 1111 1111"]),
        ("card", "4111111111111112 1763640000123456 0.4111111111111111 a4111111111111111 4111111111111111f", []),
        ("card", "4111 1111-1111 1111 41111111111111111111111", []),
        (
            "token",
            "eyJhbGciOi.eyJzdWIi.c2ln AKIAIOSFODNN7EXAMPLE",
            ["eyJhbGciOi.eyJzdWIi.c2ln", "AKIAIOSFODNN7EXAMPLE"],
        ),
        ("token", "Authorization: Bearer abc.def-123 http://u:p4ss@h/x", ["abc.def-123", "p4ss"]),
        (
            "token",
            "password=hunter2&x PWD: 'a b' api_key=\"k[1]\" secret: s3cr3tvalue",
            ["hunter2", "a b", "k[1]", "s3cr3tvalue"],
        ),
        ("token", "invalid token: expired; secret: shared; no key here; basic things", []),
    ],
)
def test_what_is_found(kind: str, text: str, found: list[str]) -> None:
    assert finds(kind, text) == found


def test_tokens_of_known_makers() -> None:
    a = "a" * 40
    for token in (
        f"ghp_{a}",
        f"github_pat_{a}",
        f"glpat-{a}",
        f"xoxb-{a}",
        f"AIza{a}",
        f"sk_live_{a}",
        f"npm_{a}",
        f"sk-{a}",
    ):
        assert finds("token", f"x {token} y") == [token]


@pytest.mark.parametrize(("digits", "valid"), [(b"79927398713", True), (b"79927398710", False), (b"0", True)])
def test_luhn(digits: bytes, valid: bool) -> None:
    assert luhn(digits) is valid


# --- what stands there afterwards -------------------------------------------------------------------------------


def test_hashes_are_of_the_plain_form_and_of_the_key() -> None:
    transform = mask(*({"kind": kind, "action": "hash"} for kind in ("email", "card", "ipv6")))
    bodies, _, counts = masked(transform, "Bob@X.org bob@x.org", "4111-1111-1111-1111 4111111111111111", "0:0::1 ::1")
    for body in bodies:
        assert body is not None
        first, second = body.split(" ")
        assert first == second
    assert counts == [2, 2, 2]
    batch = pa.RecordBatch.from_pydict({"body": ["a@b.co"], "attributes": ["{}"]})
    other = transform.run(batch, {"env:KEY": b"another key of some length"}).column("body")[0].as_py()
    assert other != transform.run(batch, KEYS).column("body")[0].as_py()


def test_the_hash_is_hmac_sha_256_cut_to_sixteen_digits() -> None:
    bodies, _, _ = masked(mask({"kind": "ipv4", "action": "hash", "label": "address"}), "from 10.0.0.1")
    assert bodies == [f"from [address:{hmac.digest(KEYS['env:KEY'], b'10.0.0.1', 'sha256').hex()[:16]}]"]


def test_keep_last() -> None:
    assert keep_last(b"4111-1111-1111-1234", 4, digits_only=True) == b"****-****-****-1234"
    assert keep_last(b"4111111111111234", 8, digits_only=True) == b"********11111234"
    assert keep_last("größe".encode(), 4, digits_only=False) == "***ße".encode()
    assert keep_last(b"abcd@ef", 3, digits_only=False) == b"*****ef"


def test_redact_with_a_custom_replacement() -> None:
    bodies, attributes, _ = masked(
        mask({"kind": "ipv4", "replacement": 'an "IP"'}), "10.0.0.1", attributes={"ip": "10.0.0.1"}
    )
    assert bodies == ['an "IP"']
    assert json.loads(attributes[0]) == {"ip": 'an "IP"'}


def test_own_patterns_replace_the_whole_or_the_group() -> None:
    whole = mask({"kind": "pattern", "label": "order", "pattern": "o-[0-9a-f]{8}"})
    assert masked(whole, "o-0123abcd paid")[0] == ["[order] paid"]
    group = mask({"kind": "pattern", "label": "user", "pattern": r"user=(\S+)"})
    assert masked(group, "user=bob user=al x")[0] == ["user=[user] user=[user] x"]
    named = mask({"kind": "pattern", "label": "pin", "pattern": r"(?:pin|code) (?P<secret>\d+)"})
    assert masked(named, "pin 1234, code 5")[0] == ["pin [pin], code [pin]"]
    anchored = mask({"kind": "pattern", "label": "id", "pattern": "^id-[0-9]+$"})
    assert json.loads(masked(anchored, "id-1", attributes={"a": "id-1", "b": "x id-1"})[1][0]) == {
        "a": "[id]",
        "b": "x id-1",
    }


def test_values_at_any_depth_and_never_keys() -> None:
    attributes = {"a@b.co": "a@b.co", "n": {"list": ["x a@b.co", {"k": 'quote " \\ a@b.co\n'}]}, "i": 1, "none": None}
    _, (text,), counts = masked(mask({"kind": "email"}), "", attributes=attributes)
    assert json.loads(text) == {
        "a@b.co": "[email]",
        "n": {"list": ["x [email]", {"k": 'quote " \\ [email]\n'}]},
        "i": 1,
        "none": None,
    }
    assert counts == [3]


def test_numbers_become_text_where_they_are_masked() -> None:
    _, (text,), _ = masked(
        mask({"kind": "card", "action": "keep_last"}), "", attributes={"card": 4111111111111111, "id": 4111111111111112}
    )
    assert json.loads(text) == {"card": "************1111", "id": 4111111111111112}


def test_attributes_with_telling_names_are_secrets() -> None:
    attributes = {
        "password": "x",
        "db": {"apiKey": 5, "user": "u"},
        "tokens": 3,
        "Authorization": "y",
        "set-cookie": "c=1",
    }
    _, (text,), counts = masked(mask({"kind": "token"}), "", attributes=attributes)
    assert json.loads(text) == {
        "password": "[token]",
        "db": {"apiKey": "[token]", "user": "u"},
        "tokens": 3,
        "Authorization": "[token]",
        "set-cookie": "[token]",
    }
    assert counts == [4]


def test_values_are_looked_at_one_by_one() -> None:
    """One value's end and the next one's start make no find, and hide none."""
    attributes = {"a": "token: ", "b": "password=short", "c": "x\ny", "d": ["10.0.", "0.1"], "e": 'q"'}
    _, (text,), _ = masked(mask({"kind": "token"}, {"kind": "ipv4"}), "", attributes=attributes)
    assert json.loads(text) == {**attributes, "b": "password=[token]"}


def test_chosen_fields_only() -> None:
    attributes = {"ip": "10.0.0.1", "net": {"ip": "10.0.0.2", "peer": "10.0.0.3"}, "net.ip": "10.0.0.4"}
    transform = mask({"kind": "ipv4"}, fields=["attributes.net.peer", "attributes.ip"])
    bodies, (text,), _ = masked(transform, "10.0.0.9", attributes=attributes)
    assert bodies == ["10.0.0.9"]
    assert json.loads(text) == {"ip": "[ipv4]", "net": {"ip": "10.0.0.2", "peer": "[ipv4]"}, "net.ip": "10.0.0.4"}


def test_counts_add_up_over_masks_and_dead_rows_pass() -> None:
    batch = parser({"format": "json"}).run(raw([b'{"msg":"a@b.co 10.0.0.1"}', b"a@b.co", b'{"msg":null}']), {})
    both = mask({"kind": "email"}, {"kind": "ipv4"}).run(batch, KEYS)
    again = mask({"kind": "pattern", "label": "email", "pattern": "at (home)"}).run(both, KEYS)
    assert again.column("masked_email").to_pylist() == [1, 0, 0]
    assert again.column("masked_ipv4").to_pylist() == [1, 0, 0]
    assert again.column("value").to_pylist() == [None, b"a@b.co", None]
    assert again.column("body").to_pylist() == ["[email] [ipv4]", None, None]


def test_nothing_of_a_masked_line_is_left_in_its_row() -> None:
    secret = b'{"msg":"mail bob@example.com","card":"4111 1111 1111 1111"}'
    batch = parser({"format": "json"}).run(raw([secret], headers=[("x", b"bob@example.com")]), {})
    row = mask({"kind": "email"}, {"kind": "card"}).run(batch, KEYS).to_pylist()[0]
    assert "example.com" not in str(row)
    assert "4111" not in str(row)


@pytest.mark.parametrize("unit", ["a:", "a::", "::", "1 ", "4111 ", "4", "a@", "a@b.", "1.", "password=", "[", "eyJ"])
def test_long_lines_take_time_in_proportion(unit: str) -> None:
    transform = mask(*({"kind": kind} for kind in KINDS))
    long = unit * (100_000 // len(unit))
    (body,), _, _ = masked(transform, long, attributes={"v": long})
    assert body is not None


# --- keys -------------------------------------------------------------------------------------------------------


def test_keys_come_from_environment_or_file(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"0123456789abcdef\n")
    refs = (KeyRef(env="K"), KeyRef(file=str(path)))
    assert load_keys(refs, {"K": "x" * 16}) == {"env:K": b"x" * 16, f"file:{path}": b"0123456789abcdef"}


def test_a_key_that_cannot_be_had_is_told(tmp_path: Path) -> None:
    with pytest.raises(MaskKeyError, match="set the environment variable K"):
        load_keys((KeyRef(env="K"),), {})
    with pytest.raises(MaskKeyError, match="too short"):
        load_keys((KeyRef(env="K"),), {"K": "short"})
    with pytest.raises(MaskKeyError, match="No such file"):
        load_keys((KeyRef(file=str(tmp_path / "none")),), {})


# --- properties -------------------------------------------------------------------------------------------------

PIECES = [
    *("a@b.co", "bob@example.com", "%40", "@", ".", "1.2.3.4", "10.0.0.", "1", "::1", "2001:db8::1", ":", "f", "::"),
    *("4111 1111 1111 1111", "4111-1111-1111-1111", "4222222222222", "1111", " ", "-", "4", "password=", "token: "),
    *(
        "Bearer abcdefgh1",
        "eyJhbGciOi.eyJzdWIi.c2ln",
        "x",
        "[",
        "]",
        "*",
        "é",
        '"',
        "\\",
        "\n",
        "hunter2",
        "http://u:p@h",
    ),
]
pieces = st.lists(st.sampled_from(PIECES), max_size=10).map("".join)
texts = st.one_of(pieces, st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
rules = st.builds(rule, st.sampled_from(KINDS), st.sampled_from(ACTIONS))


def one_rule(made: MaskRule) -> MaskTransform:
    return msgspec.structs.replace(mask({"kind": "email"}), rules=(made,))


@settings(max_examples=150, deadline=None)
@given(made=rules, text=texts)
@example(made=rule("email", "keep_last"), text="a@b.co@c.de")
@example(made=rule("card", "keep_last"), text="4111 1111 1111 1111 1111 1111 1111 1111")
@example(made=rule("ipv6"), text="1::2::3 1:2:3:4:5:6:7:8:9::1")
def test_nothing_a_detector_finds_is_left_and_nothing_else_is_touched(made: MaskRule, text: str) -> None:
    found = detector_for(made).find(text.encode())
    (body,), (written,), (count,) = masked(one_rule(made), text, attributes={"v": [text], text: 1})
    assert body is not None
    assert detector_for(made).find(body.encode()) == []
    assert (count == 0) == (not found)
    if not found:
        assert body == text
    tree = json.loads(written)
    assert list(tree) == (["v", text] if text != "v" else ["v"])
    if text != "v" and not (made.kind == "token" and SECRET_KEY.search(text)):
        assert tree["v"] == [body]


@settings(max_examples=80, deadline=None)
@given(kind=st.sampled_from(KINDS), text=texts)
def test_redaction_is_idempotent(kind: str, text: str) -> None:
    transform = one_rule(rule(kind))
    (once,), (tree_once,), _ = masked(transform, text, attributes={"v": text})
    (twice,), (tree_twice,), (count,) = masked(transform, once, attributes=json.loads(tree_once))
    assert (once, tree_once, 0) == (twice, tree_twice, count)


@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(KINDS), text=texts)
def test_what_stands_around_finds_stays(kind: str, text: str) -> None:
    """Cutting the replacement out of the masked text gives what cutting the find out of the text gives."""
    spans = detector_for(rule(kind)).find(text.encode())
    (body,), _, (count,) = masked(one_rule(rule(kind)), text)
    assert body is not None
    if len(spans) == count == 1 and f"[{kind}]" not in text:
        start, end = spans[0]
        assert body.encode().replace(f"[{kind}]".encode(), b"") == text.encode()[:start] + text.encode()[end:]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    return [shape(inner) for inner in value] if isinstance(value, list) else None


@settings(max_examples=100, deadline=None)
@given(made=rules, attributes=st.dictionaries(texts, json_values, max_size=3))
def test_json_stays_json_with_its_keys(made: MaskRule, attributes: dict[str, Any]) -> None:
    _, (written,), _ = masked(one_rule(made), "", attributes=attributes)
    tree = json.loads(written)
    assert shape(tree) == shape(attributes)
    for key, value in tree.items():
        if isinstance(value, str) and not (made.kind == "token" and SECRET_KEY.search(key)):
            assert detector_for(made).find(value.encode()) == []


@settings(max_examples=60, deadline=None)
@given(st.lists(texts, max_size=8))
def test_rows_do_not_depend_on_their_neighbours(bodies: list[str]) -> None:
    transform = mask(*({"kind": kind, "action": "hash"} for kind in KINDS))
    together, _, _ = masked(transform, *bodies)
    assert together == [masked(transform, body)[0][0] for body in bodies]


digit_texts = st.text("0123456789 -x\u00e9", max_size=40)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.none() | digit_texts, min_size=1, max_size=6), st.integers(0, 5))
@example(["", "x4111111111111", "1", "4111-1111-1111-1"], 1)
def test_no_row_with_a_card_number_is_passed_over(rows: list[str | None], start: int) -> None:
    column = pa.array(rows, pa.string())[start:]
    looked_at = rows_with_digit_runs(column).tolist()
    assert looked_at == sorted(set(looked_at))
    compiled = re.compile(detector_for(rule("card")).expression)
    hits = {row for row, text in enumerate(column.to_pylist()) if text and compiled.search(text)}
    assert hits <= set(looked_at) <= set(range(len(column)))
