"""The report as one page: what was done, the verdicts, the pictures, the tables, and how to read them."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from vitscope.core.page_style import whole_page
from vitscope.sparse.report.tables import Table, seeds_in_words, tables_of
from vitscope.sparse.report.text import remarks
from vitscope.sparse.report.verdict import verdicts_of
from vitscope.sparse.report.words import NOTHING
from vitscope.sparse.rows import Row
from vitscope.version import __version__

# Pictures are drawn in dark ink on white, so they keep a white card on a dark page.
STYLE = """\
main { max-width: 64rem; }
header { border-color: var(--accent); }
ul.verdicts { list-style: none; padding: 0; margin: 0; }
.verdicts li { border-left: .3rem solid var(--unsure); padding: .1rem 0 .1rem .8rem; margin: 0 0 .6rem; }
.verdicts .better { border-color: var(--good); } .verdicts .worse { border-color: var(--bad); }
.verdicts .remark { border-color: var(--line); color: var(--quiet); }
figure img { display: block; width: 100%; height: auto; max-width: 50rem; background: #fff; border-radius: .5rem;
  padding: .5rem; border: 1px solid var(--line); }
h3 { margin-top: 1.6rem; }
td, th { white-space: nowrap; font-variant-numeric: tabular-nums; text-align: right; }
td.network, th.network { text-align: left; }
tr.control td { color: var(--quiet); } tr.control td.network { padding-left: 1.2rem; }
tr.begins td { border-top: 2px solid var(--line); }
.subject { grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); }
"""
CAPTIONS = {
    "accuracy_and_speed": "Accuracy and speed. Large marks are means over seeds, pale ones single seeds; the dashed "
    "line is the dense network.",
    "what_is_left": "What is left of every block, round by round. How many are left is drawn, not which ones.",
}
HOW_TO_READ = (
    "A row is a network of one round, over all seeds. `dense` is where the rounds began; indented rows are controls, "
    "trained for as many epochs as the algorithm.",
    "`dense, retrained` lost nothing: what more training alone is worth. `random choice` lost as much, by lot: what "
    "choosing is worth. `new weights` is the same small network from the start: what the old weights are worth. "
    "`one-shot` lost the smallest at once: what the algorithm adds to that.",
    "A verdict compares within each seed. 'Better' and 'worse' mean that the 95 % interval of the mean difference "
    "leaves out 0; of twenty comparisons of equals about one says so by chance. One seed has no spread.",
    "The epoch was chosen on validation pictures. Test pictures chose nothing.",
    "A speed-up is the dense network's time over this one's, both timed in turns in one run, as the launch says. "
    "A network that is only masked is as large and as slow as before, and has none.",
)


def as_page(rows: Sequence[Row], *, settings: Mapping[str, str], title: str, pictures: Mapping[str, Path]) -> str:
    """`pictures` are PNG files by name; they become part of the page."""
    return whole_page(title, "\n".join(_body(rows, settings, title, pictures)), style=STYLE)


def _body(rows: Sequence[Row], settings: Mapping[str, str], title: str, pictures: Mapping[str, Path]) -> Iterator[str]:
    yield f'<header>\n<p class="small">vitscope {__version__} · sparse training</p>\n<h1>{escape(title)}</h1>'
    yield f"<p>{escape(seeds_in_words(rows))}</p>\n</header>"
    if settings:
        yield '<h2>What was done</h2>\n<dl class="subject">'
        yield from (f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in settings.items())
        yield "</dl>"
    yield '<h2>Verdicts</h2>\n<ul class="verdicts">'
    for verdict in verdicts_of(rows):
        said = escape(verdict.in_words()).replace(f": {verdict.word}.", f": <strong>{verdict.word}.</strong>", 1)
        yield f'<li class="{verdict.word.replace(" ", "-")}">{said}</li>'
    yield from (f'<li class="remark">{escape(line)}</li>' for line in remarks(rows))
    yield "</ul>"
    if pictures:
        yield "<h2>Pictures</h2>"
        yield from (_figure(name, path) for name, path in pictures.items())
    yield "<h2>Tables</h2>"
    for table in tables_of(rows):
        yield from _table(table)
    yield "<h2>How to read this</h2>"
    yield from (f"<p>{_prose(text)}</p>" for text in HOW_TO_READ)


def _figure(name: str, path: Path) -> str:
    caption = escape(CAPTIONS.get(name, name), quote=True)
    content = base64.b64encode(path.read_bytes()).decode()
    return (
        f"<figure><figcaption>{caption}</figcaption>"
        f'<img alt="{caption}" src="data:image/png;base64,{content}"></figure>'
    )


def _table(table: Table) -> Iterator[str]:
    columns = [*table.keys, *table.columns]
    yield f'<h3>{escape(table.title)}</h3>\n<div class="wide"><table>\n<thead><tr>'
    yield "".join(f"<th{_class(column.name)}>{escape(column.name)}</th>" for column in columns)
    yield "</tr></thead>\n<tbody>"
    before = None
    for cells in zip(*(column.cells for column in columns), strict=True):
        if all(cell == NOTHING for cell in cells[len(table.keys) :]):
            continue
        kinds = ["control"] * cells[1].startswith(" ") + ["begins"] * (cells[0] != before)
        before = cells[0]
        yield f'<tr class="{" ".join(kinds)}">' if kinds else "<tr>"
        yield "".join(
            f"<td{_class(column.name)}>{escape(cell.strip())}</td>" for column, cell in zip(columns, cells, strict=True)
        )
        yield "</tr>"
    yield "</tbody>\n</table></div>"
    if table.note:
        yield f'<p class="small">{escape(table.note)}</p>'


def _class(column: str) -> str:
    return ' class="network"' if column == "network" else ""


def _prose(text: str) -> str:
    """Escaped; what stands in backticks is code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts))
