"""Templates: lines of one program share one, ids stay, values come back, and memory is bounded."""

import random

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.pipeline.templates.drain import Tree
from logboom.pipeline.templates.state import STATE, TemplateLimits, advance
from logboom.pipeline.templates.words import OPEN, first_lines, openings_of, values_in, without_values, words_of

LIMITS = TemplateLimits(templates_max=50, groups_max=5)
SHAPES = (
    "Accepted password for {word} from {ip} port {n} ssh2",
    "Connection closed by {ip} [preauth]",
    "session opened for user {word} by (uid={n})",
    "GET /orders/{n} took {n}ms",
    "cache miss",
    "worker {word} crashed with code {n}: {word} {word}",
)
PEOPLE = ("ann", "bob", "eve", "mallory", "trent")


def line(shape: str, chance: random.Random) -> str:
    text = shape
    while "{" in text:
        text = text.replace("{word}", chance.choice(PEOPLE), 1)
        text = text.replace("{ip}", ".".join(str(chance.randrange(256)) for _ in range(4)), 1)
        text = text.replace("{n}", str(chance.randrange(100_000)), 1)
    return text


def masked(lines: list[str]) -> pa.Array:
    return without_values(first_lines(pa.array(lines, pa.string())))


def test_lines_of_one_shape_have_one_template_in_every_batch_and_after_a_restart() -> None:
    chance = random.Random(7)
    state = STATE.empty_table()
    ids: dict[str, set[str]] = {}
    for _ in range(20):
        shapes = [chance.choice(SHAPES) for _ in range(200)]
        lines = [line(shape, chance) for shape in shapes]
        learnt = advance(LIMITS, state, pa.array(["sshd"] * len(lines)), masked(lines))
        again = advance(LIMITS, state, pa.array(["sshd"] * len(lines)), masked(lines))
        assert learnt.state.equals(again.state)
        assert learnt.ids.equals(again.ids)
        with pa.BufferOutputStream() as sink:
            with pa.ipc.new_file(sink, STATE) as file:
                file.write_table(learnt.state)
            state = pa.ipc.open_file(sink.getvalue()).read_all()
        for shape, id_ in zip(shapes, learnt.ids.to_pylist(), strict=True):
            ids.setdefault(shape, set()).add(id_)
    assert all(len(found) == 1 for found in ids.values())
    assert len(set.union(*ids.values())) == len(SHAPES)
    texts = {" ".join(words) for words in state.column("words").to_pylist()}
    assert "Accepted password for <*> from <*> port <*> ssh<*>" in texts
    assert "session opened for user <*> by (uid=<*>)" in texts
    assert sum(state.column("count").to_pylist()) == 4_000


def test_values_are_what_the_template_leaves_open() -> None:
    template = words_of("Accepted password for <*> from <*> port <*> (uid=<*>)")
    assert values_in(openings_of(template), "Accepted password for ann from 10.0.0.1 port 22 (uid=7)") == [
        "ann",
        "10.0.0.1",
        "22",
        "7",
    ]


def test_what_is_taken_out_of_lines() -> None:
    lines = [
        "id 4bf92f3577b34da6a3ce929d0e0e4736 took 12.5ms\nat x.y",
        "  \n",
        "0xdeadBEEF 3fa85f64-5717-4562-b3fc-2c963f66afa6",
    ]
    assert masked(lines).to_pylist() == ["id <*> took <*>ms", None, "<*> <*>"]


WORDS = st.lists(st.sampled_from(["a", "b", "c", "d", "x1", "y=2", "10.0.0.1", "é"]), min_size=1, max_size=6)


@settings(max_examples=100)
@given(st.lists(WORDS, max_size=40))
def test_a_line_fits_the_template_it_is_given_and_template_and_values_make_the_line(lines: list[list[str]]) -> None:
    texts = [" ".join(words) for words in lines]
    groups = pa.array(["g"] * len(texts), pa.string())
    learnt = advance(LIMITS, None, groups, masked(texts))
    for text, template in zip(texts, learnt.texts.to_pylist(), strict=True):
        parts = template.split(" ")
        values = iter(values_in(openings_of(parts), text))
        rebuilt = []
        for part in parts:
            at = part.find(OPEN)
            rebuilt.append(part if at < 0 else part[:at] + next(values) + part[part.rfind(OPEN) + len(OPEN) :])
        assert " ".join(rebuilt) == text


@settings(max_examples=50)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=10))
def test_no_text_is_too_odd(texts: list[str]) -> None:
    odd = [*texts, "\x1c", "\x85\u2028", "a\x1cb 1", "\x00", "<*> <*>", "x " * 5_000]
    learnt = advance(LIMITS, None, pa.array(["g"] * len(odd), pa.string()), masked(odd))
    lines = first_lines(pa.array(odd, pa.string())).to_pylist()
    for text, template in zip(lines, learnt.texts.to_pylist(), strict=True):
        assert (text is None) == (template is None)
        if text is not None:
            assert len(values_in(openings_of(template.split(" ")), text)) <= 100


@settings(max_examples=50)
@given(st.lists(st.tuples(st.text("abc", max_size=1), WORDS), max_size=60))
def test_memory_is_bounded(lines: list[tuple[str, list[str]]]) -> None:
    limits = TemplateLimits(templates_max=3, groups_max=2)
    texts = [" ".join(words) for _, words in lines]
    learnt = advance(limits, None, pa.array([group for group, _ in lines], pa.string()), masked(texts))
    assert learnt.state.num_rows <= 3 * 3
    assert learnt.ids.null_count == 0


def test_templates_that_are_more_than_may_be_any_longer_are_counted() -> None:
    """As those are that make room for others: `max_templates` is a dial."""
    groups, lines = pa.array(["g"] * 6), pa.array([" ".join(["w"] * number) for number in range(1, 7)])
    learnt = advance(LIMITS, None, groups, lines)
    fewer = advance(TemplateLimits(templates_max=2, groups_max=5), learnt.state, groups[:1], lines[5:])
    assert (learnt.evicted, fewer.evicted, fewer.state.num_rows) == (0, 4, 2)


def test_the_least_recently_used_template_makes_room() -> None:
    tree = Tree("g", 2)
    first, second = tree.learn(("a", "b")), tree.learn(("c", "d"))
    assert tree.learn(("a", "b")) is first
    tree.learn(("e", "f", "g"))
    assert tree.templates[0] is first
    assert second not in tree.templates
    assert tree.evicted == 1
    assert tree.learn(("c", "d")).id == second.id


def test_a_thousand_first_words_make_one_template_of_the_rest() -> None:
    tree = Tree("g", 5_000)
    for number in range(1_000):
        name = "".join(chr(ord("a") + int(digit)) for digit in str(number))
        tree.learn((name, "logged", "in", "again"))
    assert len(tree.templates) <= 101
    assert (OPEN, "logged", "in", "again") in [template.words for template in tree.templates]
