"""Settings of a sparse experiment: what goes, how much a round, by which rule, and what it is held against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from vitscope.core.config import config, require
from vitscope.core.suggest import did_you_mean

Algorithm = Literal["rsst", "refill", "imp", "oneshot", "2of4"]
KIND_NAMES = ("heads", "neurons", "channels")
SPARSE, TRAIN = "sparse.yaml", "train.yaml"
"""Where an experiment's folder holds these settings, which tells such a folder, and those of training."""
SEED = "{seed}"
"""In the name of what rounds begin with: each seed begins with a network of its own."""
CONTROLS = ("dense", "random", "reinit", "oneshot")
"""dense: nothing removed, trained again for as long. random: as much removed, by lot. reinit: the same network from new
weights. oneshot: the smallest removed at once, then trained."""


@config
class SparseConfig:
    """Rounds of training and removing. Of what remains, each takes `rate`: after k rounds (1 - rate)^k is left."""

    algorithm: Algorithm = "rsst"
    """imp: single weights, rewound. refill: as many whole units as such a mask is worth, rewound. rsst: doomed units
    are drawn to 0 in training, then cut out. oneshot: cut out at once. 2of4: two of each four neighbouring weights of
    a ViT stay, in one round from trained weights, for GPUs that have units for it; `rate` means nothing then."""
    rate: float = 0.2
    """Share of what remains that each round takes."""
    rounds: int = 1
    """Number of rounds."""
    epochs: int | None = None
    """Epochs per round; the recipe's own by default."""
    dense_epochs: int | None = None
    """Epochs of the dense network's training, where it is trained here; the recipe's own by default."""
    dense_teaches: float = 0.0
    """Share of the dense network's answers in the loss of rounds and controls, beside the labels; 0: labels alone."""
    units: str = "all"
    """What is removed whole, with commas between: heads and neurons of a ViT, channels of a CNN or ResNet."""
    criterion: Literal["remain", "magnitude", "l1", "l2", "saliency", "random"] = "saliency"
    """What makes a unit worth keeping."""
    rank: Literal["global", "layer"] | None = None
    """Whether units compete over all blocks, or in each block by itself. By default over all; with refill, whose mask
    says how many stay in each block, in each."""
    reg: float = 1.0
    """rsst: where lambda ends. It changes what is logged and not how hard units are pulled: eta makes up for it. What
    does change that is --exp, --growth and --growth-share."""
    exp: float = 4.0
    """rsst: how late lambda rises, in the schedule `rsst`."""
    growth: Literal["rsst", "linear", "quadratic", "cubic", "exponential"] = "rsst"
    """rsst: how lambda rises."""
    growth_share: float = 0.7
    """rsst: how much of a round's epochs passes before the cut."""
    fillback: float = 0.2
    """refill: share of the units lost that is given back. 0 is the paper's Refill, 1 removes nothing."""
    rewind: int = 0
    """imp and refill: the epoch of the dense training whose weights rounds go back to; 0: those it began with."""
    round_to: int = 1
    """Neurons and channels kept in a block are a multiple of this; 8 is quick on GPUs."""
    least_neurons: int = 1
    """Neurons (channels) that stay in every block."""
    allow_empty: bool = False
    """Let a block lose all its heads or all its neurons."""
    patch_embed: bool = False
    """imp and refill: the patch filter may lose weights too."""
    score_batches: int = 16
    """Training batches that units are scored on."""
    controls: str = "none"
    """What the network is held against, at equal epochs: none, all, or some of dense, random, reinit, oneshot, with
    commas between."""
    control_rounds: str = "all"
    """Which rounds have controls beside them: all, the last, or those of these numbers, with commas between. The others
    are only the way there."""
    timing: Literal["all", "first", "none"] = "all"
    """Which networks are timed beside the dense one: the algorithm's of every seed, of the first seed, or none."""
    seeds: int = 1
    """Number of seeds: everything is done with each, from --seed on."""

    def __post_init__(self) -> None:
        for name, floor in (("rounds", 1), ("seeds", 1), ("round_to", 1), ("least_neurons", 1), ("rewind", 0)):
            value = getattr(self, name)
            require(value >= floor, name, f"{floor} or more", value)
        for name in ("epochs", "dense_epochs"):
            value = getattr(self, name)
            require(value is None or value >= 1, name, "1 or more", value)
        require(
            self.score_batches >= 10, "score_batches", "10 or more: fewer tell of their pictures", self.score_batches
        )
        share = f"{self.rate:g} %: --rate {self.rate / 100:g}" if 2 <= self.rate < 100 else None
        require(0 < self.rate < 1, "rate", "a share above 0 and below 1", self.rate, fix=share)
        require(0 <= self.dense_teaches <= 1, "dense_teaches", "a share from 0 to 1", self.dense_teaches)
        require(0 <= self.fillback <= 1, "fillback", "a share from 0 to 1", self.fillback)
        require(0 < self.growth_share < 1, "growth_share", "a share above 0 and below 1", self.growth_share)
        for name in ("reg", "exp"):
            value = getattr(self, name)
            require(0 < value < float("inf"), name, "a positive number", value)
        _require_known("units", self.kinds, KIND_NAMES)
        _require_known("controls", self.held_against, CONTROLS)
        _require_rounds("control_rounds", self.control_rounds, self.rounds)
        require(
            self.rounds == 1 or self.algorithm != "2of4",
            "rounds",
            "1 with 2of4, which takes two of each four weights once",
            self.rounds,
            fix="leave it out",
        )
        require(
            self.criterion != "remain" or self.algorithm == "refill",
            "criterion",
            "one that needs no unstructured mask, which only refill makes",
            self.criterion,
            fix="--criterion saliency, or --algorithm refill",
        )
        require(
            self.rewind == 0 or self.rewinds,
            "rewind",
            "0 with this algorithm, which goes on from trained weights",
            self.rewind,
            fix="leave it out, or --algorithm imp or refill",
        )

    @property
    def rewinds(self) -> bool:
        """Whether each round begins with the weights of the rewind point; else with those of the round before."""
        return self.algorithm in ("imp", "refill")

    @property
    def ranks(self) -> Literal["global", "layer"]:
        """How units compete, whether it was asked for or not."""
        return self.rank or ("layer" if self.algorithm == "refill" else "global")

    @property
    def kinds(self) -> tuple[str, ...]:
        named = _listed(self.units)
        return KIND_NAMES if named == ("all",) else named

    @property
    def rounds_held(self) -> tuple[int, ...]:
        """The rounds that have controls beside them, in order."""
        named = {"all": range(1, self.rounds + 1), "last": (self.rounds,)}
        return tuple(
            named.get(self.control_rounds.strip()) or sorted({int(word) for word in _listed(self.control_rounds)})
        )

    @property
    def held_against(self) -> tuple[str, ...]:
        """The controls, in the order of their table."""
        named = _listed(self.controls)
        if named == ("all",):
            return CONTROLS
        return (
            ()
            if named == ("none",)
            else tuple(name for name in CONTROLS if name in named)
            + tuple(name for name in named if name not in CONTROLS)
        )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _require_rounds(name: str, given: str, rounds: int) -> None:
    if given.strip() in ("all", "last"):
        return
    wanted = f"all, last, or numbers from 1 to {rounds} with commas between"
    require(bool(_listed(given)), name, wanted, "nothing")
    for word in _listed(given):
        require(word.isdecimal() and 1 <= int(word) <= rounds, name, wanted, word)


def _require_known(name: str, given: Sequence[str], known: Sequence[str]) -> None:
    require(bool(given) or name == "controls", name, f"some of {', '.join(known)}", "nothing")
    for word in given:
        require(
            word in known, name, f"some of {', '.join(known)}, with commas between", word, fix=did_you_mean(word, known)
        )
