"""Rules proposed from sample lines: what is recognised, that it is accepted, and what it reads."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.pipeline_core.batches import events, raw
from typer.testing import CliRunner

from logboom.cli.pipeline import pipeline
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.suggest.proposal import Proposal, propose
from logboom.pipeline.suggest.templates import templates_of
from logboom.pipeline.transforms.parse import ParseTransform


def proposed(lines: list[str]) -> tuple[Proposal, list[dict[str, Any]]]:
    """What is proposed, and what it makes of the lines."""
    found = propose(lines, "app")
    node = compile_pipeline(found.yaml, "app.yaml").transforms[0]
    assert isinstance(node, ParseTransform)
    return found, events(node, raw([line.encode() for line in lines]))


def test_built_in_formats_are_found_the_largest_first() -> None:
    lines = [json.dumps({"msg": f"m{number}"}) for number in range(20)]
    lines += [f"level=info msg=x{number} n=1" for number in range(10)]
    found, _ = proposed(lines)
    assert found.read == found.lines == 30
    assert found.yaml.index("format: json  # 20 of 30 lines") < found.yaml.index("format: logfmt  # 10 of 30 lines")


def test_words_that_change_become_fields() -> None:
    # One decimal digit after another, so that times are given as no built-in format has them.
    lines = [
        line
        for number in range(30)
        for line in (
            f"261120 12{number:02}00 <WARN> order o-{number} of user=u{number} took {number} ms from 192.0.2.{number}",
            f"261120 12{number:02}01 <INFO> started in {number}.5 s (pid 7)",
        )
    ]
    found, rows = proposed(lines)
    assert found.read == found.lines == 60
    assert 'time_format: "%y%m%d %H%M%S"' in found.yaml
    assert rows[2]["time"].isoformat() == "2026-11-20T12:01:00+00:00"
    assert (rows[2]["severity_text"], rows[3]["severity_number"]) == ("WARN", 9)
    assert rows[2]["attributes"] == {"order": 1, "user": "u1", "took": 1, "address": "192.0.2.1"}
    # Every line here has this number, but it is a process's: those of the next file have another.
    assert rows[3]["attributes"] == {"seconds": 1.5, "pid": 7}
    assert rows[3]["body"] == "started in 1.5 s (pid 7)"


@pytest.mark.parametrize("padded", ["{level:<5} ", "{level:>5} ", "[{level}]   "])
def test_severities_padded_to_one_width_are_one_header(padded: str) -> None:
    """As `%-5p` of log4j writes them; the blanks belong neither to the message nor to a field."""
    lines = [
        f"261120 12{number:02}00 {padded.format(level=level)}[cart] basket b-{number} stored in {number} ms"
        for number, level in enumerate(("INFO", "ERROR", "WARN", "DEBUG") * 10)
    ]
    found, rows = proposed(lines)
    assert found.read == found.lines == 40
    assert found.yaml.count("- format:") == 1
    assert rows[1]["body"] == "[cart] basket b-1 stored in 1 ms"
    assert [row["severity_number"] for row in rows[:4]] == [9, 17, 13, 5]
    assert rows[1]["attributes"] == {"basket": 1, "ms": 1}


def test_severities_share_the_pattern_of_their_message() -> None:
    """One for each severity, all of them alike, was proposed where it is the first word behind the time."""
    lines = [
        f"2026-11-26 12:{number:02}:00,123 {level} [worker-{number % 9}] cache miss key=cart:{number} size={number}KB"
        for number, level in enumerate(("INFO", "ERROR", "WARN", "DEBUG") * 10)
    ]
    found, rows = proposed(lines)
    assert found.yaml.count("cache miss") == 1
    assert [row["severity_number"] for row in rows[:4]] == [9, 17, 13, 5]
    assert rows[5]["attributes"] == {"worker": 5, "cart": 5, "size": 5}


@pytest.mark.parametrize(
    ("in_front", "fields"),
    [
        ("api.log.1 ", {"prefix": "api.log.1"}),
        ("web-{number}  | ", {"prefix": "web-7"}),
        ("a.log web ", {"prefix": "a.log", "prefix_2": "web"}),
    ],
)
def test_a_time_may_stand_behind_a_word_or_two(in_front: str, fields: dict[str, str]) -> None:
    """As `grep` and `docker compose logs` put the file or the container in front."""
    lines = [
        in_front.format(number=number) + f"2026-11-20 12:00:{number:02} WARN [cart] basket b-{number} stored"
        for number in range(40)
    ]
    found, rows = proposed(lines)
    assert found.read == found.lines == 40
    assert found.yaml.count("- format:") == 1
    assert rows[7]["time"].isoformat() == "2026-11-20T12:00:07+00:00"
    assert (rows[7]["severity_text"], rows[7]["body"]) == ("WARN", "[cart] basket b-7 stored")
    assert rows[7]["attributes"] == {**fields, "basket": 7}


def test_times_without_a_year_make_no_line_a_text() -> None:
    """They are read by the record's time, which sample lines have none of."""
    lines = [f"Feb 29 12:00:{number:02} [cart] basket b-{number} stored in {number} ms" for number in range(40)]
    found, _ = proposed(lines)
    assert found.read == found.lines == 40
    assert "%{SYSLOGTIMESTAMP:time}" in found.yaml or "syslog_rfc3164" in found.yaml


@pytest.mark.parametrize("delimiter", ["|", ";", "\t"])
def test_lines_of_columns_become_columns(delimiter: str) -> None:
    lines = [
        delimiter.join((f"2026-01-01 00:00:{number:02}", "WARN", f"svc-{number % 3}", f"user {number} logged in", "7"))
        for number in range(30)
    ]
    found, rows = proposed([*lines, "a line of another kind"])
    assert (found.lines, found.read) == (31, 31)
    assert "columns: [time, severity, field_3, body, field_5]" in found.yaml
    assert (rows[4]["body"], rows[4]["severity_text"]) == ("user 4 logged in", "WARN")
    assert rows[4]["time"].isoformat() == "2026-01-01T00:00:04+00:00"
    assert rows[4]["attributes"] == {"field_3": "svc-1", "field_5": "7"}


def test_two_programs_in_one_file_get_a_rule_each() -> None:
    lines = [f"2026/11/20 12:00:{number:02} worker {number} is done" for number in range(40)]
    lines += [f"[20/Nov/2026:12:00:{number:02} +0000] job {number} queued" for number in range(20)]
    found, rows = proposed(lines)
    assert found.read == 60
    assert found.yaml.count("- format: pattern") == 2
    assert {row["time"].date().isoformat() for row in rows} == {"2026-11-20"}


def test_what_has_no_form_is_text() -> None:
    found, rows = proposed(["one", "two words here", "%{x} (( '", ""])
    assert (found.lines, found.read) == (3, 3)
    assert "format: text" in found.yaml
    assert rows[2]["body"] == "%{x} (( '"


@settings(max_examples=8, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=40), min_size=1, max_size=12))
@example(['0 \x1f "'])
@example(["7 \x85\u2028\ufeff \\d'"])
def test_what_is_proposed_is_always_accepted(lines: list[str]) -> None:
    found = propose([*lines, *lines, *lines], "app")
    compile_pipeline(found.yaml, "app.yaml")
    assert found.read <= found.lines


def test_characters_that_may_not_stand_in_yaml_are_escaped() -> None:
    found = propose(["0 \x1f"] * 3, "app")
    assert r"\u001f" in found.yaml
    assert found.read == found.lines == 3
    compile_pipeline(found.yaml, "app.yaml")


def test_templates_share_words() -> None:
    found = templates_of([f"user {name} logged in".split() for name in ("ann", "bob", "eve")] + [["other"]])
    assert [(template.words, template.count) for template in found] == [
        (["user", None, "logged", "in"], 3),
        (["other"], 1),
    ]
    assert found[0].values(1) == ["ann", "bob", "eve"]


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_bytes(b'{"msg": "a"}\n{"msg": "\xff"}\n\n')
    done = CliRunner().invoke(pipeline, ["suggest", str(tmp_path / "app.log"), "--name", "mine"])
    assert done.exit_code == 0, done.output
    assert "name: mine\n" in done.stdout
    for words, message in (
        ([str(tmp_path / "none")], "No such file"),
        ([str(tmp_path / "app.log"), "--name", "a b"], "name"),
    ):
        done = CliRunner().invoke(pipeline, ["suggest", *words])
        assert message in str(done.exception)
    (tmp_path / "empty").write_bytes(b"\n")
    assert "no lines" in str(CliRunner().invoke(pipeline, ["suggest", str(tmp_path / "empty")]).exception)


@pytest.mark.parametrize("quote", ["'", '"'])
def test_quotes_in_lines_are_quoted_in_the_file(quote: str) -> None:
    found, _ = proposed([f"2026/11/20 12:00:00 it{quote}s {number} o{quote}clock" for number in range(5)])
    assert found.read == 5
