"""Draws docs/pictures/schedules.png: every schedule, from the table training reads its learning rate from.

python examples/schedules.py [FILE.png]
"""

from __future__ import annotations

import sys
from pathlib import Path

from vitscope.train.config import ScheduleConfig
from vitscope.train.optim.schedule import Plateau, lr_table
from vitscope.train.show.plots.canvas import BLUE, GREEN, GREY, ORANGE, new_figure, plain_axes, save

LR, EPOCHS, STEPS_PER_EPOCH = 1e-3, 100, 20


def plateau_rates(config: ScheduleConfig) -> list[float]:
    """A made-up validation loss that falls until epoch 40 and then stays: what the schedule makes of it."""
    table = lr_table(config, lr=LR, steps_per_epoch=STEPS_PER_EPOCH, epochs=EPOCHS).view(EPOCHS, STEPS_PER_EPOCH)
    plateau, rates = Plateau(config, lr=LR), []
    for epoch, row in enumerate(table):
        rates += (row * plateau.factor).tolist()
        plateau.update(max(1.0 - epoch / 50, 0.2))
    return rates


def main(path: Path) -> None:
    # Setting -> colour, and where its name stands: beside the curve, so that no legend has to be read.
    curves = {
        ScheduleConfig(): (BLUE, "cosine (the default)", (62, 4.3e-4)),
        ScheduleConfig(name="step"): (ORANGE, "step", (31, 1.3e-4)),
        ScheduleConfig(name="plateau"): (GREEN, "plateau: the loss\nfalls until epoch 40", (48, 8.2e-4)),
        ScheduleConfig(name="constant"): (GREY, "constant", (90, 9.4e-4)),
    }
    figure = new_figure(3.6)
    axes = figure.subplots()
    plain_axes(axes, x="epoch", y="learning rate", title="schedules, each after a warm-up of 10 %")
    for config, (colour, label, place) in reversed(curves.items()):
        if config.name == "plateau":
            rates = plateau_rates(config)
        else:
            rates = lr_table(config, lr=LR, steps_per_epoch=STEPS_PER_EPOCH, epochs=EPOCHS).tolist()
        epochs = [step / STEPS_PER_EPOCH for step in range(len(rates))]
        axes.plot(epochs, rates, color=colour, linewidth=1.8)
        axes.text(*place, label, color=colour, fontsize=10, va="center")
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    print(f"wrote {save(figure, path)}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures/schedules.png"))
