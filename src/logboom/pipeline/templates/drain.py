"""Drain: templates of lines, learnt one line at a time by a tree of fixed depth.

He, Zhu, Zheng, Lyu: "Drain: An Online Log Parsing Approach with Fixed Depth Tree", ICWS 2017. The levels of the
tree are the number of words and the first word; at its leaves a line belongs to the template with which it shares most
words, if these are at least `SIMILAR` of all, and opens the words that differ. The library drain3 does the same and
pins old versions of packages that read objects out of JSON, so it is not used (docs/decisions/0032 compares both).

Knows only words. A template keeps its id as it opens; the least recently used one makes room for a new one.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from logboom.pipeline.plan.sampling import xxh64
from logboom.pipeline.templates.words import OPEN

SIMILAR: Final = 0.5
_CHILDREN_MAX: Final = 100
"""Beyond so many different first words a line counts as one whose first word is open."""

_Leaf = tuple[int, str]


@dataclass(slots=True)
class Template:
    """The words that some lines share."""

    id: str
    """16 hexadecimal digits, of the words of its first line and the group's name."""
    words: tuple[str, ...]
    count: int = 0

    @property
    def text(self) -> str:
        """Its words with a blank between two."""
        return " ".join(self.words)


class Tree:
    """The templates of one group of lines."""

    def __init__(self, group: str, templates_max: int, templates: Iterable[Template] = ()) -> None:
        """`templates`: those that it had, the least recently used first."""
        self._group = group
        self._max = templates_max
        self._templates: OrderedDict[str, Template] = OrderedDict()
        self._leaf_of: dict[str, _Leaf] = {}
        self._leaves: dict[_Leaf, list[Template]] = {}
        self._firsts: dict[int, set[str]] = {}
        had = tuple(templates)
        self.evicted = max(0, len(had) - templates_max)
        """How many templates have made room for others, or are more than may be any longer."""
        for template in had[-templates_max:]:
            self._add(template)

    @property
    def templates(self) -> tuple[Template, ...]:
        """All, the least recently used first."""
        return tuple(self._templates.values())

    def learn(self, words: tuple[str, ...], count: int = 1) -> Template:
        """The template of a line of these words, at least one, that came this many times."""
        leaf = self._leaves.get(self._leaf(words), ())
        best = max(leaf, key=lambda template: _similarity(template.words, words), default=None)
        if best is None or _similarity(best.words, words) < SIMILAR:
            best = self._new(words)
        elif best.words != words:
            pairs = zip(best.words, words, strict=True)
            best.words = tuple(own if own == word else OPEN for own, word in pairs)
        best.count += count
        self._templates.move_to_end(best.id)
        return best

    def _new(self, words: tuple[str, ...]) -> Template:
        number, identity = 0, f"{self._group}\n{' '.join(words)}"
        while (id_ := f"{xxh64(identity.encode()):016x}") in self._templates:
            number += 1  # another one began with the same words, and has opened to something else
            identity = f"{self._group}\n{number}\n{' '.join(words)}"
        if len(self._templates) >= self._max:
            _, oldest = self._templates.popitem(last=False)
            self._leaves[self._leaf_of.pop(oldest.id)].remove(oldest)
            self.evicted += 1
        template = Template(id_, words)
        self._add(template)
        return template

    def _add(self, template: Template) -> None:
        firsts = self._firsts.setdefault(len(template.words), set())
        if len(firsts) < _CHILDREN_MAX and OPEN not in template.words[0]:
            firsts.add(template.words[0])
        leaf = self._leaf(template.words)
        self._templates[template.id], self._leaf_of[template.id] = template, leaf
        self._leaves.setdefault(leaf, []).append(template)

    def _leaf(self, words: Sequence[str]) -> _Leaf:
        return len(words), words[0] if words[0] in self._firsts.get(len(words), ()) else OPEN


def _similarity(words: Sequence[str], others: Sequence[str]) -> float:
    """The part of the words that are the same."""
    return sum(map(str.__eq__, words, others)) / len(words)
