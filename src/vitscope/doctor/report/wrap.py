"""Lines of a width, also of Chinese, whose letters are two cells wide and whose words have no spaces between them."""

from __future__ import annotations

import re
import unicodedata

_CHINESE = "\u2e80-\u9fff\uff00-\uffef"
_STOPS = r".,;:!?)，。；：！？）"
_WORDS = re.compile(rf"`[^`\n]*`[{_STOPS}]*|[{_CHINESE}]|[^\s{_CHINESE}`]+|\s+|`")
"""A command in backticks stays in one piece, so that it can be copied; a Chinese letter is a word."""
_NEVER_FIRST = f"{_STOPS}、》」”%"
_NEVER_LAST = "(（《「“"


def width_of(text: str) -> int:
    """Cells of a terminal."""
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def wrapped(text: str, width: int, *, first: str = "", then: str = "") -> list[str]:
    """The text in lines of at most `width` cells, where its words allow it; `first` stands before the first line,
    `then` before the others."""
    lines: list[str] = []
    line, is_empty = first, True
    for piece in _pieces(text, width - width_of(then)):
        if piece.isspace():
            line += "" if is_empty else " "
            continue
        if not is_empty and width_of(line) + width_of(piece) > width:
            lines.append(line.rstrip())
            line = then
        line += piece
        is_empty = False
    return [*lines, line.rstrip()]


def padded(text: str, width: int) -> str:
    return text + " " * max(0, width - width_of(text))


def _pieces(text: str, width: int) -> list[str]:
    """What a line may be broken between. What is longer than a line is cut at its spaces, or anywhere."""
    pieces: list[str] = []
    for word in _WORDS.findall(text):
        if width_of(word) > width:
            pieces += _cut(word, width)
        elif pieces and not word.isspace() and _sticks(pieces[-1], word):
            pieces[-1] += word
        else:
            pieces.append(word)
    return pieces


def _sticks(before: str, word: str) -> bool:
    """Whether no line may end between them."""
    if word[0] in _NEVER_FIRST or before[-1] in _NEVER_LAST:
        return True
    return word[0] == "`" and before.isascii() and not before.isspace()


def _cut(word: str, width: int) -> list[str]:
    if " " in word:
        return [piece for piece in re.split(r"(\s+)", word) if piece]
    return [word[place : place + width] for place in range(0, len(word), width)]
