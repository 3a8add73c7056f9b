"""Random numbers that can be repeated: one seed for everything, seeds derived from it, states put back."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

from vitscope.core.errors import ConfigError, expected

_LARGEST = 2**63 - 1


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy's global generator and torch (every device)."""
    import numpy as np
    import torch

    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _LARGEST:
        raise ConfigError(expected("seed", "an integer from 0 to 2**63 - 1", repr(seed)))
    random.seed(seed)
    np.random.seed(seed % 2**32)  # the most NumPy's global generator takes
    torch.manual_seed(seed)  # the GPUs too, also when they are first used later


def derive_seed(*parts: int | str) -> int:
    """A seed of 63 bits that depends on every part and on their order: `derive_seed(seed, epoch, index)`.

    The same on every machine and in every process, unlike `hash`, which Python salts.

    >>> derive_seed(0, "augment", 3)
    5912309392772341688
    """
    mix = hashlib.blake2b(digest_size=8)
    for part in parts:
        if not isinstance(part, int | str):
            raise ConfigError(expected("a part of a seed", "an integer or text", repr(part)))
        content = part.encode(errors="surrogatepass") if isinstance(part, str) else b"%d" % part
        # Kind and length keep ("1",) and (1,), ("ab", "c") and ("a", "bc") apart.
        mix.update(b"%c%d:" % (b"s" if isinstance(part, str) else b"i", len(content)))
        mix.update(content)
    return int.from_bytes(mix.digest(), "big") >> 1


@contextmanager
def preserved_rng() -> Iterator[None]:
    """Put every global generator back as it was, whatever the block draws or seeds, also when it fails."""
    import numpy as np
    import torch

    had_cuda, had_mps = torch.cuda.is_initialized(), torch.backends.mps.is_available()
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda_states = torch.cuda.get_rng_state_all() if had_cuda else []
    mps_state = torch.mps.get_rng_state() if had_mps else None
    seed = torch.initial_seed()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        if torch.cuda.is_initialized() and not had_cuda:
            # The block was the first to use a GPU, which was to start from the last seed given.
            torch.cuda.manual_seed_all(seed)
        elif had_cuda:
            torch.cuda.set_rng_state_all(cuda_states)
        if mps_state is not None:
            torch.mps.set_rng_state(mps_state)
        torch.set_rng_state(states[2])
