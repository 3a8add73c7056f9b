"""What `make demo` shows: what the freshly trained model says to a digit it never saw, and where it looks.

python examples/first_look.py RUN [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import vitscope


def main(run: Path, folder: Path) -> None:
    predictor = vitscope.Predictor.load(run, device="cpu")  # the weights of the best epoch, preprocessing and labels
    dataset = vitscope.open_dataset("digits")
    number = int(dataset.splits["test"][0])
    picture, truth = dataset.source.picture(number), dataset.class_names[dataset.source.labels[number]]

    found = vitscope.explain(predictor, picture, "gradient_rollout")
    print(f"test picture {number}, a {truth}: the model says")
    for guess in found.prediction.top_k[:3] if found.prediction else ():
        print(f"  {guess.label}  {guess.probability:6.1%}  {'#' * round(40 * guess.probability)}")

    attention = found.save(folder / "attention.png")
    heads = found.save_sheet(folder / "heads.png")
    print(f"\nfaithfulness of the map {found.faithfulness}")
    print(f"\ncurves     {run / 'plots' / 'curves.png'}\nconfusions {run / 'plots' / 'confusion_matrix.png'}")
    print(f"attention  {attention}\nheads      {heads}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else "demo-out"))
