"""Advice about weights in the words of a run: where `load_model` takes arguments, `train` has flags."""

from __future__ import annotations

import re

SAME = {
    "give config= (--model), the name of its model": "name its model with --model",
    "give its folder as config= (--model)": "give its folder with --model",
    "give the config of a ViT": "name a ViT with --model",
    "give the config the weights are for": "name the model they are for, or a folder that describes it, with --model",
    "give a config with the img_size and tokens the weights are for": "name the model they are for with --model",
    "name another model:": "name another model with --model:",
    "config= (--model)": "--model",
    "load_model(folder)": "--from FOLDER",
}


def in_flags(advice: str) -> str:
    """The same advice for whoever trains.

    >>> in_flags("give a config with position='learned'")
    'set --model.position learned'
    """
    advice = re.sub(r"[,;] or allow_partial=True.*", "", advice)  # a run begins with whole weights, or with new ones
    advice = re.sub(r"load_model\(file, config=[^)]*\)", "--from FILE --model NAME", advice)
    for theirs, ours in SAME.items():
        advice = advice.replace(theirs, ours)
    return re.sub(r"give a config with ((?:\w+=\S+)(?: and \w+=\S+)*)", lambda found: f"set {_flags(found[1])}", advice)


def _flags(settings: str) -> str:
    """`pool='attention' and class_token=False` -> `--model.pool attention --model.no-class-token`."""
    flags = []
    for setting in settings.split(" and "):
        key, _, value = setting.partition("=")
        key, value = key.replace("_", "-"), value.strip("',;:")
        switch = {"True": f"--model.{key}", "False": f"--model.no-{key}"}
        flags.append(switch.get(value, f"--model.{key} {value}"))
    return " ".join(flags)
