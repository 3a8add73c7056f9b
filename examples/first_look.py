"""What `make demo` shows last: what the freshly trained model says to a digit it never saw, and where it looks.

python examples/first_look.py RUN [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import vitscope
from vitscope.data.preprocess import preprocess
from vitscope.infer.attention_picture import draw_attention


def main(run: Path, folder: Path) -> None:
    model = vitscope.load_model(run)  # the weights of the best epoch, with their preprocessing and labels
    dataset = vitscope.open_dataset("digits")
    number = int(dataset.splits["test"][0])
    picture, truth = dataset.source.picture(number), dataset.class_names[dataset.source.labels[number]]

    with torch.no_grad():
        chances = model(preprocess(picture, model.preprocessing)[None]).softmax(-1)[0]
    print(f"test picture {number}, a {truth}: the model says")
    names = model.labels or dataset.class_names
    for chance, place in zip(*chances.topk(3), strict=True):
        print(f"  {names[place]}  {chance:6.1%}  {'#' * round(40 * float(chance))}")

    path = draw_attention(
        model,
        picture,
        model.preprocessing,
        folder / "attention.png",
        patch=(1, 1),
        title=f"trained on digits: where a patch of this {truth} looks in the last layer",
    )
    print(f"\ncurves     {run / 'plots' / 'curves.png'}\nconfusions {run / 'plots' / 'confusion_matrix.png'}")
    print(f"attention  {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else "demo-out"))
