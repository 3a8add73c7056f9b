"""Did-you-mean: the nearest known words to a mistyped one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

CERTAIN = 0.9
"""From this likeness on, a word is the other mistyped: `vit_smal`, where `swin` is a word to search for."""


def nearest(word: str, known: Iterable[str], *, limit: int = 3, likeness: float = 0.6) -> list[str]:
    """Up to `limit` known words close to `word`, nearest first; a likeness of 1 is the word itself. Case and `-`/`_` do
    not count.

    >>> nearest("vit-smal", ["vit_small", "vit_base", "resnet18"], limit=1)
    ['vit_small']
    """
    plain = {plainly(name): name for name in known}
    return [plain[match] for match in get_close_matches(plainly(word), list(plain), n=limit, cutoff=likeness)]


def did_you_mean(
    word: str, known: Iterable[str], synonyms: Mapping[str, str] | None = None, *, before: str = ""
) -> str | None:
    """A sentence that names the likely word, or None when nothing is near.

    `synonyms` holds other people's words (`hidden_size`) and ours for the same thing (`embed_dim`). `before` is said
    before each of the words, as a folder is before its files; it is not compared.

    >>> did_you_mean("hidden_size", ["embed_dim"], {"hidden_size": "embed_dim"})
    "you mean 'embed_dim'"
    """
    known = list(known)
    ours = (synonyms or {}).get(word.replace("-", "_"))
    if ours is not None and ours in known:
        return f"you mean '{before}{ours}'"
    matches = nearest(word, known, limit=1, likeness=CERTAIN) or nearest(word, known)
    if not matches:
        return None
    return "did you mean " + " or ".join(f"'{before}{match}'" for match in matches) + "?"


def plainly(word: str) -> str:
    """As words are compared: case and `-`/`_` do not count."""
    return word.lower().replace("-", "_")
