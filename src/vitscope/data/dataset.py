"""A data set: its pictures, its classes, and which of them are for training, validation and test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitscope.core.errors import DataError
from vitscope.data.config import DataConfig
from vitscope.data.sources.open import open_source
from vitscope.data.sources.source import Source
from vitscope.data.splits import PARTS, Splits, make_splits


@dataclass(frozen=True, repr=False)
class Dataset:
    """Pictures with their classes and parts; `make_loader` makes batches of it."""

    source: Source
    splits: Splits
    config: DataConfig

    def __repr__(self) -> str:
        sizes = ", ".join(f"{part} {len(self.splits[part]):,}" for part in PARTS)
        return f"Dataset({self.config.name!r}: {self.source.kind}, {self.num_classes} classes, {sizes})"

    def in_words(self) -> str:
        """In a line, and without a path: it may travel with a model."""
        sizes = ", ".join(f"{len(self.splits[part]):,} {part}" for part in PARTS)
        return f"{Path(self.config.name).name} ({self.source.kind}), {self.num_classes} classes, {sizes} pictures"

    def __len__(self) -> int:
        """Pictures in all parts."""
        return sum(len(self.splits[part]) for part in PARTS)

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.source.class_names

    @property
    def num_classes(self) -> int:
        return len(self.source.class_names)

    def labels(self, part: str) -> np.ndarray:
        """(N,) of one part."""
        return self.source.labels[self.splits[part]]

    def counts(self, part: str) -> np.ndarray:
        """(num_classes,) pictures of each class."""
        return np.bincount(self.labels(part), minlength=self.num_classes)

    def require_trainable(self) -> None:
        """Refuse what no classifier can be trained on."""
        if self.num_classes < 2:
            raise DataError(
                f"only one class, '{self.class_names[0]}'",
                where=self.source.place,
                fix="give pictures of at least two classes, one folder or label each",
            )
        for part in ("train", "val"):  # without a test part there is only less to say in the end
            if not len(self.splits[part]):
                raise DataError(
                    f"no pictures are left for {part} ({len(self.source):,} in all)",
                    where=self.source.place,
                    fix="give more pictures, or other shares (val_share, pool_shares)",
                )
        trained = self.counts("train") > 0
        for part in ("val", "test"):
            unseen = np.flatnonzero((self.counts(part) > 0) & ~trained)
            if len(unseen):
                names = ", ".join(f"'{self.class_names[label]}'" for label in unseen[:5])
                raise DataError(
                    f"classes in {part} that training never shows: {names}",
                    where=self.source.place,
                    fix=f"add training pictures of them, or take them out of {part}",
                )


def open_dataset(config: DataConfig | str) -> Dataset:
    """The data set a config (or just its name or path) stands for, split."""
    if isinstance(config, str):
        config = DataConfig(name=config)
    source = open_source(config.name, config)
    splits = make_splits(
        source.labels,
        source.parts,
        seed=config.split_seed,
        val_share=config.val_share,
        pool_shares=config.pool_shares,
        train_limit=config.train_limit,
    )
    return Dataset(source, splits, config)
