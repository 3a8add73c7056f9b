"""README.md of a saved model, where nobody has written a better one: what it is, what it takes, how to load it."""

from __future__ import annotations

from collections.abc import Sequence

from vitscope.data.config import PreprocessConfig
from vitscope.models.config import ModelConfig, pair

USE = """## How to load it

```python
import torch
import vitscope
from vitscope.data.preprocess import preprocess

model = vitscope.load_model("FOLDER")  # the folder this file is in
picture = preprocess(vitscope.decode_image("PICTURE"), model.preprocessing).to({dtype})
with torch.inference_mode():
    {line}
```
"""
CLASSIFY = """shares = model(picture[None]).softmax(dim=1)
print(model.labels[int(shares.argmax())], float(shares.max()))"""
COUNT = """shares = model(picture[None]).softmax(dim=1)
print(int(shares.argmax()), float(shares.max()))"""
LOOK = "features = model.{part}forward_features(picture[None])"


def plain_card(
    config: ModelConfig, parameters: int, preprocessing: PreprocessConfig, labels: Sequence[str], dtype: str
) -> str:
    """The same model gets the same text, wherever and whenever it is saved."""
    height, width = pair(config.img_size)
    does = f"says which of {len(labels):,} classes each shows" if labels else "gives features, it has no classes"
    what = (
        f"A network of the family {config.family} with {parameters:,} parameters ({dtype}). It takes pictures of "
        f"{height} x {width} pixels with {config.in_chans} channel{'s' if config.in_chans > 1 else ''} and {does}. "
        "`config.json` has its settings.\n"
    )
    title = f"# {config.family}, {height} x {width}{f', {len(labels):,} classes' if labels else ''}\n"
    look = LOOK.format(part="encoder." if hasattr(config, "encoder") else "")
    line = (COUNT if _are_numbers(labels) else CLASSIFY) if labels else look
    use = USE.format(line=line, dtype=f"torch.{dtype}")
    return "\n".join((title, what, pictures_section(preprocessing), use, _classes(labels)))


def pictures_section(preprocessing: PreprocessConfig) -> str:
    """What happens to a picture first, in words."""
    height, width = preprocessing.img_size
    colours = {1: "grey", 3: "RGB"}.get(preprocessing.in_chans, f"{preprocessing.in_chans} channels")
    share = "" if preprocessing.crop_share == 1 else f" ({100 * preprocessing.crop_share:g} % of the side)"
    if preprocessing.crop == "centre":
        cut = f"resized with their shape kept, the middle {height} x {width}{share} cut out"
    elif share:
        cut = f"squashed, the middle {height} x {width}{share} cut out"
    else:
        cut = f"squashed to {height} x {width}"
    mean, std = (", ".join(f"{value:.4g}" for value in values) for values in (preprocessing.mean, preprocessing.std))
    return (
        "## What happens to a picture first\n\n"
        f"Pictures are made {colours}, {cut} ({preprocessing.interpolation}), counted from 0 to 1, and normalised by "
        f"mean {mean} and std {std}. `preprocessing.json` says the same to programs.\n"
    )


def _classes(labels: Sequence[str]) -> str:
    if not labels:
        return "## Classes\n\nNone.\n"
    if _are_numbers(labels):
        return f"## Classes\n\nThe numbers 0 to {len(labels) - 1:,}.\n"
    return f"## Classes\n\n{len(labels):,}, named in `labels.json`.\n"


def _are_numbers(labels: Sequence[str]) -> bool:
    return list(labels) == [str(number) for number in range(len(labels))]
