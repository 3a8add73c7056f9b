"""How the page looks."""

from __future__ import annotations

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
.healthy { border-color: var(--good); } .healthy h1 { color: var(--good); }
.unwell { border-color: var(--bad); } .unwell h1 { color: var(--bad); }
.cannot-tell { border-color: var(--unsure); } .cannot-tell h1 { color: var(--unsure); }
.small { font-size: .85rem; color: var(--quiet); }
article { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: 1rem 1.1rem;
  margin: 0 0 1rem; }
dl { margin: 0; } dt { color: var(--quiet); font-size: .85rem; } dd { margin: 0 0 .6rem; }
article dl > dd:last-child { margin-bottom: 0; }
.action { font-weight: 600; }
.subject { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: .25rem 1rem; }
.sure { display: flex; flex-wrap: wrap; align-items: center; gap: .3rem .8rem; margin: 0 0 .8rem; font-size: .9rem; }
.bar { flex: 0 0 6rem; height: .45rem; border-radius: 1rem; background: var(--line); overflow: hidden; }
.bar > span { display: block; height: 100%; background: var(--accent); }
code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .88em;
  background: color-mix(in srgb, var(--quiet) 14%, transparent); padding: .08em .3em; border-radius: .25em; }
figure { margin: .6rem 0 1rem; } figcaption { font-size: .85rem; color: var(--quiet); margin-bottom: .2rem; }
figure svg { display: block; width: 100%; height: auto; max-width: 44rem; color: var(--ink); }
figure svg * { stroke-linejoin: round; stroke-linecap: butt; }
.wide { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-size: .9rem; }
th { text-align: left; color: var(--quiet); font-weight: 500; }
th, td { padding: .4rem .8rem .4rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td:nth-child(-n+3) { white-space: nowrap; }
.found-something td:last-child { color: var(--bad); } .failed td:last-child { color: var(--unsure); }
.left-out td, .not-asked td { color: var(--quiet); }
details { color: var(--quiet); font-size: .85rem; } summary { cursor: pointer; }
details dl > div { display: flex; gap: .6rem; } details dd { margin: 0; color: var(--ink); }
@media print { article { break-inside: avoid; } }
"""
