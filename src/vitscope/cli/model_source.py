"""Which model a verb means: a run, a model folder, a weights file, or a name on the hub."""

from __future__ import annotations

from pathlib import Path

from vitscope.core.errors import UsageError
from vitscope.core.run_layout import MODEL, RUNS, folder_before, is_run_folder, runs_in
from vitscope.core.suggest import did_you_mean
from vitscope.core.what_lies import what_lies_at
from vitscope.models.variants import VARIANTS

SAVED = "config.json"
"""What tells a model folder."""
MOST_SHOWN = 5
ANY_SOURCE = "give a run, a model folder (timm's and Hugging Face's too), a weights file, or a name on the hub"


def find_model(source: str) -> str | Path:
    """What `load_model` can be given: files and names as they are, folders as the model in them."""
    from vitscope.weights.hub import is_hub_name

    path = Path(source).expanduser()
    lies = what_lies_at(path)
    is_itself = lies in ("file", "other") or (lies is None and is_hub_name(source))
    return source if is_itself else find_model_folder(source, otherwise=ANY_SOURCE)


def refuse_missing(source: str) -> None:
    """For verbs that take anything `load_model` does: what is there, or may be on the hub, is looked at by others."""
    if what_lies_at(Path(source).expanduser()) is None:
        find_model(source)


def find_described_model(source: str) -> str | Path:
    """The same for verbs that cannot be told whose layers a bare weights file is for."""
    found = find_model(source)
    if Path(found).is_file():
        from vitscope.weights.source import open_source

        with open_source(found) as opened:
            if opened.config is None:
                raise UsageError(
                    f"'{source}' holds weights alone: it does not say which model they are for",
                    where="looked for config.json beside it",
                    fix=f"make a model folder of it first: `vitscope convert {source} FOLDER --model NAME`",
                )
    return found


def find_model_folder(source: str | Path, *, otherwise: str = "give a run or model folder") -> Path:
    """The model folder that is meant: itself, or the one in a run's folder. `otherwise` is what else could be given."""
    hidden = is_hidden_name(source)
    source = Path(source).expanduser()
    what_lies_at(source)  # or says why that cannot be told
    if (source / MODEL / SAVED).is_file():
        return source / MODEL
    if (source / SAVED).is_file():
        return source
    if source.is_file():
        beside = (source.parent / SAVED).is_file()
        raise UsageError(
            f"'{source}' is a file, and a folder is needed",
            where=f"looked for {SAVED} and {MODEL}/{SAVED} in it",
            fix=f"give the folder it lies in: {source.parent}" if beside else otherwise,
        )
    if is_run_folder(source):
        raise UsageError(
            f"the run '{source}' has no model yet",
            where=f"looked for {MODEL}/{SAVED} in it",
            fix=f"wait until its first epoch is over, or continue it: `vitscope train --resume --out {source}`",
        )
    if str(source) in VARIANTS and not source.exists():
        raise UsageError(
            f"'{source}' is the name of a model, and no weights come with it",
            where="looked for a run, a model folder, a weights file, or a name on the hub",
            fix=f"`vitscope train --model {source}` trains it from new weights{_published(str(source))}",
        )
    inside = runs_in(source)
    what = "holds no model" if source.exists() else "does not exist"
    advice = [f"it holds runs; name one, such as {source / inside[-1]}"] if inside else _beside(source)
    if hidden:
        advice.append(f"if the model on the hub is meant: hf-hub:{source}")
    raise UsageError(
        f"'{source}' {what}",
        where=f"looked for {SAVED} and {MODEL}/{SAVED} in it",
        fix="; ".join(advice) or otherwise,
    )


def _beside(source: Path) -> list[str]:
    """What could be meant instead: of its folder or, where only a name was given, of those that runs are in."""
    beside = _models_in(source.parent)
    is_bare = str(source.parent) == "."
    near = did_you_mean(source.name, beside, before=folder_before(source))
    if near is None and is_bare:
        near = did_you_mean(source.name, _models_in(Path(RUNS)), before=f"{RUNS}/")
    if near is not None or not beside or is_bare:
        return [near] if near is not None else []
    return [f"'{source.parent}' holds {', '.join(beside[-MOST_SHOWN:])}{' ...' if len(beside) > MOST_SHOWN else ''}"]


def _models_in(folder: Path) -> list[str]:
    """Runs and model folders directly inside."""
    try:
        saved = [entry.name for entry in folder.iterdir() if (entry / SAVED).is_file()]
    except OSError:
        saved = []
    return sorted({*runs_in(folder), *saved})


def is_hidden_name(source: str | Path) -> bool:
    from vitscope.weights.hub import hidden_by_folder

    return hidden_by_folder(source)


def _published(name: str) -> str:
    from vitscope.weights.pretrained import PRETRAINED

    return f"; `--model {name} --from {PRETRAINED[name].hub}` from published ones" if name in PRETRAINED else ""
