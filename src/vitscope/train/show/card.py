"""The README.md of a trained model: what it is, how it was trained, how well it does, and how to use it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from vitscope.models.config import pair
from vitscope.train.config import TrainConfig
from vitscope.weights.card import pictures_section

MOST_LABELS = 100
"""With more classes only the first are listed; labels.json has them all."""
USE = """## How to use it

```python
import torch
import vitscope
from vitscope.data.preprocess import preprocess

model = vitscope.load_model("FOLDER")  # the folder this file is in
picture = vitscope.decode_image("PICTURE")
with torch.inference_mode():
    shares = model(preprocess(picture, model.preprocessing)[None]).softmax(dim=1)
print(model.labels[int(shares.argmax())], float(shares.max()))
```

```
vitscope eval FOLDER --data NAME_OR_FOLDER
```
"""


def model_card(
    *,
    config: TrainConfig,
    dataset_line: str,
    classes: Sequence[str],
    params: int,
    best: Mapping[str, Any],
    test: Mapping[str, Any] | None,
    commands: Sequence[str],
    versions: str,
) -> str:
    """Only what is given is said. `best` and `test` are metric rows; with `val/count` and `test/count` (pictures) in
    them, each accuracy comes with its number of pictures and its 95 % interval."""
    parts = (
        f"# {config.model.name}: {len(classes):,} classes\n",
        _what(config, dataset_line, classes, params),
        _accuracy(config, best, test),
        _training(config, commands, versions),
        _pictures(config),
        USE,
        _labels(classes),
        _limits(config, dataset_line, classes),
    )
    return "\n".join(parts)


def wilson_interval(right: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share of `count` trials (Wilson 1927), which stays within 0 and 1.

    >>> low, high = wilson_interval(90, 100)
    >>> f"{low:.3f} {high:.3f}"
    '0.826 0.945'
    """
    if count <= 0:
        return 0.0, 1.0
    z = 1.959963984540054
    share = right / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    # At the ends the exact limits are 0 and 1; rounding must not leave the share outside.
    return (0.0 if right == 0 else middle - half), (1.0 if right == count else middle + half)


def _what(config: TrainConfig, dataset_line: str, classes: Sequence[str], params: int) -> str:
    height, width = pair(config.model.bare.img_size)
    return (
        f"A network of the family {config.model.family} with {params:,} parameters. It takes pictures of {height} x "
        f"{width} pixels and says which of {len(classes):,} classes each shows. `config.json` has its settings.\n\n"
        f"Trained on: {_plain(dataset_line)}\n"
    )


def _accuracy(config: TrainConfig, best: Mapping[str, Any], test: Mapping[str, Any] | None) -> str:
    lines = ["## How well it does\n", "| part | accuracy | 95 % interval | pictures | loss |", "|---|---|---|---|---|"]
    lines += [_measured("validation", best, "val"), _measured("test", test or {}, "test")]
    epoch, monitor = best.get("epoch"), config.loop.monitor
    if epoch is not None:
        sentence = f"\nThese are the weights of epoch {epoch:g}, the best by {monitor}."
        if monitor.startswith("val/"):
            sentence += " The validation pictures chose them, and so their figures flatter them a little."
        lines.append(sentence)
    return "\n".join(lines) + "\n"


def _measured(name: str, row: Mapping[str, Any], part: str) -> str:
    accuracy, loss, count = (row.get(f"{part}/{key}") for key in ("accuracy", "loss", "count"))
    if accuracy is None:
        return f"| {name} | not measured | | | |"
    interval = pictures = ""
    if count:
        low, high = wilson_interval(round(accuracy * count), int(count))
        interval, pictures = f"{100 * low:.2f} to {100 * high:.2f} %", f"{count:,}"
    shown = "" if loss is None else f"{loss:.4f}"
    return f"| {name} | {100 * accuracy:.2f} % | {interval} | {pictures} | {shown} |"


def _training(config: TrainConfig, commands: Sequence[str], versions: str) -> str:
    optim, loop, schedule = config.optim, config.loop, config.schedule
    facts = [
        f"{loop.epochs:,} epochs at most, batches of {config.data.batch_size:,}, seed {loop.seed}",
        f"optimiser {optim.name}, learning rate {config.lr:g} ({schedule.name}, warm-up {schedule.warmup}), "
        f"weight decay {optim.decay:g}",
        f"loss {config.loss.name}, label smoothing {config.loss.smoothing:g}",
    ]
    if config.checkpoint.init_from is not None:
        facts.append("weights began as those of another model, not at random")
    if config.loss.teacher is not None:
        facts.append("taught by another model too (distillation)")
    if loop.ema_decay is not None:
        facts.append(f"weights are a running mean (EMA, decay {loop.ema_decay:g})")
    listed = "\n".join(f"- {fact}" for fact in facts)
    typed = "\n".join(commands)
    return f"## How it was trained\n\n```\n{typed}\n```\n\n{listed}\n- {versions}\n"


def _pictures(config: TrainConfig) -> str:
    model = config.model.bare
    preprocess = config.data.preprocess(pair(model.img_size), model.in_chans)
    return pictures_section(preprocess)


def _labels(classes: Sequence[str]) -> str:
    if list(classes) == [str(number) for number in range(len(classes))]:
        return f"## Classes\n\nThe numbers 0 to {len(classes) - 1:,}.\n"
    listed = ", ".join(f"{number} {_plain(name)}" for number, name in enumerate(classes[:MOST_LABELS]))
    more = f", and {len(classes) - MOST_LABELS:,} more in `labels.json`" if len(classes) > MOST_LABELS else ""
    return f"## Classes\n\n{listed}{more}\n"


def _limits(config: TrainConfig, dataset_line: str, classes: Sequence[str]) -> str:
    height, width = pair(config.model.bare.img_size)
    return (
        "## Limits\n\n"
        f"- It knows the {len(classes):,} classes above; a picture of anything else is given one of them too.\n"
        f"- It was trained on {_plain(dataset_line)}; pictures of another origin were not tried.\n"
        f"- It sees {height} x {width} pixels; what is smaller than a pixel of that is lost.\n"
        "- The confidence it gives was not calibrated.\n"
    )


def _plain(text: str) -> str:
    """In one line, and as it is: not as Markdown."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))
