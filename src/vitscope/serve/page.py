"""The page a person sees: four files of ours that load nothing from anywhere else."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "page"
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""Address -> file and kind. No other file can be asked for: addresses are looked up here, never on the disk."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
"""Of every answer, not only of the page's."""


def read_files() -> dict[str, tuple[bytes, str]]:
    return {address: ((FOLDER / name).read_bytes(), kind) for address, (name, kind) in FILES.items()}
