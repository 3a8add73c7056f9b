"""`vitscope VERB ...`: find the verb, run it, turn errors into three short lines and an exit code.

Imports neither torch nor tyro: help must come at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

from vitscope.core.errors import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, UsageError, VitscopeError
from vitscope.core.suggest import did_you_mean
from vitscope.version import __version__

# Verb -> what it does. Each lives in `vitscope.cli.<verb>` as `run(args) -> exit code`.
VERBS = {
    "models": "list the models, count one's parts, trace its shapes, or ask which to take",
    "data": "look a data set over: classes, sizes, bad pictures, duplicates, leaks, how to start",
    "train": "train a classifier: a recipe, a YAML file, or a data set and a model",
    "doctor": "find out why a model does not train: before training, after it, with evidence and what to do",
    "sparsify": "make a network smaller by sparse training: rounds, controls, measured accuracy and speed",
    "eval": "measure a trained model: accuracy with its interval, per class, which classes are confused",
    "predict": "say what pictures show: one, a folder or a pattern, with how sure the model is",
    "features": "extract features: save them, find similar pictures, probe their quality, draw a map",
    "explain": "show where a model looks in a picture, and test whether its answer depends on that",
    "bench": "time a model: beside timm and transformers, in smaller numbers, compiled; which way is fastest here",
    "convert": "write weights from anywhere in another format, with proof of what became of every tensor",
    "export": "write a model as one file other programs run, ONNX or .pt2, after comparing its answers",
    "serve": "answer about pictures over HTTP, with a page to drop them on",
    "check": "show the environment: Python, torch, GPUs, memory, disk, extras",
}


def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in args
    args = [arg for arg in args if arg != "--debug"]
    try:
        return _dispatch(args)
    except VitscopeError as error:
        if debug:
            traceback.print_exc()
        if not error.was_said:
            error.where = error.where or " ".join(["vitscope", *args[:1]])
            _say_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # `vitscope models | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_DONE
    except Exception as error:
        if debug:
            traceback.print_exc()
        first_line = (str(error).splitlines() or [""])[0]  # torch adds its own trace below
        what = f"{type(error).__name__}: {first_line}"
        _say_error(VitscopeError(what, where=" ".join(["vitscope", *args]), fix="add --debug to see the traceback"))
        return EXIT_FAILED


def _dispatch(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help", "help"):
        _write(_help())
        return EXIT_DONE
    if args[0] in ("-V", "--version"):
        _write(f"vitscope {__version__}\n")
        return EXIT_DONE
    verb = args[0]
    if verb not in VERBS:
        kind = "flag" if verb.startswith("-") else "verb"
        known = ("--help", "--version", "--debug") if kind == "flag" else VERBS
        fix = did_you_mean(verb, known) or f"verbs: {', '.join(VERBS)}"
        from vitscope.core.one_voice import in_one_voice

        with in_one_voice():
            raise UsageError(f"unknown {kind} '{verb}'", where="vitscope", fix=fix)
    try:
        return import_module(f"vitscope.cli.{verb}").run(args[1:])
    except SystemExit as leaving:  # the verb's help was shown
        return leaving.code if isinstance(leaving.code, int) else EXIT_DONE


def _help() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb:<{width}}  {about}" for verb, about in VERBS.items())
    return (
        f"vitscope {__version__}: a workbench for Vision Transformers\n\n"
        "usage: vitscope VERB [...] [--debug]\n\n"
        f"verbs:\n{verbs}\n\n"
        "`vitscope VERB --help` explains a verb.\n"
    )


def _say_error(error: VitscopeError) -> None:
    sys.stderr.write(f"error: {error.for_command_line()}\n")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
