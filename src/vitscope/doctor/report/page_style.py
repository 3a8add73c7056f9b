"""How what only the doctor's page has looks: the verdict, findings, drawings, the table of checks."""

from __future__ import annotations

STYLE = """\
.healthy { border-color: var(--good); } .healthy h1 { color: var(--good); }
.unwell { border-color: var(--bad); } .unwell h1 { color: var(--bad); }
.cannot-tell { border-color: var(--unsure); } .cannot-tell h1 { color: var(--unsure); }
article dl > dd:last-child { margin-bottom: 0; }
.action { font-weight: 600; }
.sure { display: flex; flex-wrap: wrap; align-items: center; gap: .3rem .8rem; margin: 0 0 .8rem; font-size: .9rem; }
.bar { flex: 0 0 6rem; height: .45rem; border-radius: 1rem; background: var(--line); overflow: hidden; }
.bar > span { display: block; height: 100%; background: var(--accent); }
figure svg { display: block; width: 100%; height: auto; max-width: 44rem; color: var(--ink); }
figure svg * { stroke-linejoin: round; stroke-linecap: butt; }
td:nth-child(-n+3) { white-space: nowrap; }
.found-something td:last-child { color: var(--bad); } .failed td:last-child { color: var(--unsure); }
.left-out td, .not-asked td { color: var(--quiet); }
details { color: var(--quiet); font-size: .85rem; } summary { cursor: pointer; }
details dl > div { display: flex; gap: .6rem; } details dd { margin: 0; color: var(--ink); }
"""
