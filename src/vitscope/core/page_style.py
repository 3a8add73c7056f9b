"""What every report page shares: one file, no scripts, nothing from outside, light or dark as the reader has it, narrow
or wide. A room adds the looks of its own parts."""

from __future__ import annotations

from html import escape

STYLE = """\
:root { color-scheme: light dark; --paper: #ffffff; --card: #f6f7f9; --ink: #1b1f24; --quiet: #5b6470; --line: #dfe3e8;
  --accent: #0072b2; --good: #0f7a4f; --bad: #b3261e; --unsure: #8a6100; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171b; --card: #1d2127; --ink: #e6e9ee; --quiet: #9aa4b1; --line: #333a44; --accent: #6db8ea;
    --good: #5fd0a0; --bad: #ff8a80; --unsure: #f2c14e; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.55; overflow-wrap: anywhere;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "PingFang SC", "Microsoft YaHei",
    "Noto Sans CJK SC", sans-serif; }
main { max-width: 52rem; margin: 0 auto; padding: 1rem 1rem 4rem; }
header { border-left: .35rem solid var(--quiet); padding: .25rem 0 .25rem 1rem; margin: 1rem 0 1.5rem; }
header p { margin: .2rem 0; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .75rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.1rem; margin: 0 0 .4rem; }
.small { font-size: .85rem; color: var(--quiet); }
article { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: 1rem 1.1rem;
  margin: 0 0 1rem; }
dl { margin: 0; } dt { color: var(--quiet); font-size: .85rem; } dd { margin: 0 0 .6rem; }
.subject { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: .25rem 1rem; }
code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .88em;
  background: color-mix(in srgb, var(--quiet) 14%, transparent); padding: .08em .3em; border-radius: .25em; }
figure { margin: .6rem 0 1rem; } figcaption { font-size: .85rem; color: var(--quiet); margin-bottom: .2rem; }
.wide { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-size: .9rem; }
th { text-align: left; color: var(--quiet); font-weight: 500; }
th, td { padding: .4rem .8rem .4rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
@media print { article { break-inside: avoid; } }
"""


def whole_page(title: str, body: str, *, style: str = "", language: str = "en") -> str:
    """`body` is HTML, `title` plain text; `style` comes after what all pages share."""
    return (
        f'<!doctype html>\n<html lang="{escape(language, quote=True)}">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}{style}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        "</body>\n</html>\n"
    )
