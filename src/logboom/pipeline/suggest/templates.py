"""Templates of lines: which words are always the same, and which change.

This is Drain (He, Zhu, Zheng, Lyu: "Drain: An Online Log Parsing Approach with Fixed Depth Tree", ICWS 2017) with a
tree of two levels, the number of words and the first word. The library drain3 does the same and pins old versions of
packages that read objects out of JSON, so it is not used. Knows only words.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

_SIMILAR: Final = 0.5
"""Lines of one template share at least this part of their words."""
_SAMPLES_MAX: Final = 200
_GROUPS_MAX: Final = 500


@dataclass(slots=True)
class Template:
    """Lines with the same words but for some places."""

    words: list[str | None]
    """None if the word changes."""
    count: int = 0
    samples: list[Sequence[str]] = field(default_factory=list)
    """The words of some of its lines."""

    def values(self, place: int) -> list[str]:
        """The words that were seen at a place."""
        return [words[place] for words in self.samples]

    def add(self, words: Sequence[str]) -> None:
        """One more line."""
        self.count += 1
        self.words = [own if own == word else None for own, word in zip(self.words, words, strict=True)]
        if len(self.samples) < _SAMPLES_MAX:
            self.samples.append(words)

    def similarity(self, words: Sequence[str]) -> float:
        """The part of the words that are the same."""
        same = sum(own == word for own, word in zip(self.words, words, strict=True))
        return same / max(len(words), 1)


def templates_of(lines: Iterable[Sequence[str]]) -> list[Template]:
    """The templates of lines, given as words, the most frequent first."""
    groups: dict[tuple[int, str], list[Template]] = defaultdict(list)
    for words in lines:
        first = words[0] if words and not _is_variable(words[0]) else ""
        group = groups[len(words), first]
        best = max(group, key=lambda template: template.similarity(words), default=None)
        if best is None or (best.similarity(words) < _SIMILAR and len(group) < _GROUPS_MAX):
            best = Template([None if _is_variable(word) else word for word in words])
            group.append(best)
        best.add(words)
    found = [template for group in groups.values() for template in group]
    return sorted(found, key=lambda template: -template.count)


def _is_variable(word: str) -> bool:
    """Words with digits are numbers, ids and addresses more often than names."""
    return any(character.isdigit() for character in word)
