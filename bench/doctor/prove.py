"""Shows that each healthy set-up learns: after a short training the loss is lower, and accuracy is above chance by more
than its 95 % interval.

    python bench/doctor/prove.py                          # every set-up, 300 steps each
    python bench/doctor/prove.py --only digits_vit --fault lr_x100     # what a fault does to the same training

The learning rate rises over the script's own warm-up and is then held, as the doctor's short runs do.
"""

from __future__ import annotations

import argparse
import fnmatch
import math
import time

import torch

from fault_list import FAULTS
from score import wilson
from script import Script, assemble, endless
from setups import SETUPS
from strangers import STRANGERS


def train(script: Script, steps: int) -> tuple[float, float, float, float]:
    """Loss at the beginning and the end, accuracy on validation at both."""
    setup = assemble(script)
    before, losses = setup.evaluate(), []
    rates = [float(group["lr"]) for group in setup.optimizer.param_groups]
    batches = endless(setup.train_loader)
    for number in range(steps):
        share = min(1.0, (number + 1) / script.warmup_steps) if script.warmup_steps else 1.0
        for group, rate in zip(setup.optimizer.param_groups, rates, strict=True) if script.schedule is None else ():
            group["lr"] = share * rate
        setup.model.train()
        losses.append(float(setup.step(*next(batches))))
        if not math.isfinite(losses[-1]):
            break
    return losses[0], sum(losses[-10:]) / len(losses[-10:]), before, setup.evaluate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", help="names of set-ups, with wildcards")
    parser.add_argument("--fault", default=None, help="break each in this way first")
    parser.add_argument("--strangers", action="store_true", help="networks the doctor was not tuned on (strangers.py)")
    parser.add_argument("--lr", type=float, help="another learning rate than the set-up's")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("| set-up | loss, first step | loss, last 10 | accuracy before | after | chance | seconds |")
    print("|---|---:|---:|---:|---:|---:|---:|", flush=True)
    unlearnt = []
    setups = STRANGERS if given.strangers else SETUPS
    for name in fnmatch.filter(setups, given.only):
        began = time.perf_counter()
        script = setups[name].make(given.seed)
        if given.fault is not None:
            if not FAULTS[given.fault].fits(setups[name]):
                continue
            FAULTS[given.fault].break_it(script)
        script.lr = script.lr if given.lr is None else given.lr
        chance = float(script.val.labels.bincount().max() / len(script.val))
        first, last, before, after = train(script, given.steps)
        if wilson(round(after * len(script.val)), len(script.val))[0] <= chance or last >= first:
            unlearnt.append(name)
        seconds = time.perf_counter() - began
        numbers = f"{first:.3f} | {last:.3f} | {before:.1%} | {after:.1%} | {chance:.1%} | {seconds:.0f}"
        print(f"| {name} | {numbers} |", flush=True)
    if unlearnt and given.fault is None:
        raise SystemExit(f"not shown to learn: {', '.join(unlearnt)}")


if __name__ == "__main__":
    main()
