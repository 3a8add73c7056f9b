"""How a server behaves: where it listens, how it gathers pictures into batches, and what it refuses."""

from __future__ import annotations

from vitscope.core.config import config, require

MEGA = 1_000_000
MOST = 1_000_000
"""Of seconds, megabytes and megapixels: more is no limit, and a clock cannot count it."""


@config
class ServeConfig:
    """Where a server listens, how pictures become batches, and its limits."""

    host: str = "127.0.0.1"
    """Where to listen: 127.0.0.1 is this machine only; 0.0.0.0 is every network it is in, and needs a token."""
    port: int = 8000
    """The port to listen on; 0 takes any that is free, and says which."""
    max_batch: int = 32
    """The most pictures the model looks at in one go."""
    max_delay_ms: float = 5.0
    """How long a picture waits for others that are on their way; a lone one does not wait."""
    queue: int = 128
    """Pictures taken in at a time, from arrival to answer; more are turned away with 503 and Retry-After."""
    deadline_s: float = 30.0
    """The longest a request may take, its upload included."""
    max_upload_mb: float = 32.0
    """The largest request, in millions of bytes, counted as they arrive."""
    max_megapixels: float = 50.0
    """The largest picture, in millions of pixels, known before it is decoded."""

    def __post_init__(self) -> None:
        require(0 <= self.port < 65536, "port", "a number from 0 to 65535", self.port)
        require(self.max_batch > 0, "max_batch", "a number from 1", self.max_batch)
        require(self.queue > 0, "queue", "a number from 1", self.queue)
        require(0 <= self.max_delay_ms <= MOST, "max_delay_ms", f"a number from 0 to {MOST:,}", self.max_delay_ms)
        for name in ("deadline_s", "max_upload_mb", "max_megapixels"):
            value = getattr(self, name)
            require(0 < value <= MOST, name, f"a positive number up to {MOST:,}", value)

    @property
    def max_upload_bytes(self) -> int:
        return round(self.max_upload_mb * MEGA)

    @property
    def pixel_limit(self) -> int:
        return round(self.max_megapixels * MEGA)
