"""Models by their name on the Hugging Face hub: fetched once through `huggingface_hub`, then read from its cache.

Where the hub and the cache are, and whether to go out at all, is for `huggingface_hub` to say (HF_ENDPOINT, HF_HOME,
HF_HUB_OFFLINE).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, NoReturn

from vitscope.core.errors import VitscopeError

PREFIXES = ("hf-hub:", "hf_hub:")
"""What says beyond doubt that a name is meant; timm writes it so."""
NAME = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(?P<revision>[\w./-]+))?")
FILE_ENDS = (".safetensors", ".pth", ".pt", ".bin", ".npz", ".ckpt", ".json", ".yaml", ".yml")

DESCRIPTIONS = (
    "config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "preprocessing.json",
    "labels.json",
)
WEIGHTS = (
    ("model.safetensors", "model.safetensors.index.json", "model-*-of-*.safetensors"),
    ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*-of-*.bin"),
)
"""What is fetched: the first kind a repository has, and only that."""


def is_hub_name(source: str | Path) -> bool:
    """Whether `source` names a model on the hub: 'owner/name', 'owner/name@revision', 'hf-hub:owner/name'.

    A Path is a place on this machine. Without the prefix, so is a text whose owner is a folder here.
    """
    if isinstance(source, Path):
        return False
    text = source
    if text.startswith(PREFIXES):
        return True
    return _could_be_one(text) and not Path(text.partition("/")[0]).is_dir()


def hidden_by_folder(source: str | Path) -> bool:
    """Whether `source` would be a name on the hub, were there no folder called like its owner here."""
    return not isinstance(source, Path) and _could_be_one(source) and Path(source.partition("/")[0]).is_dir()


def _could_be_one(text: str) -> bool:
    return NAME.fullmatch(text) is not None and not text.endswith(FILE_ENDS)


def fetch(name: str) -> Path:
    """The folder in the cache with the model's files; downloaded where they are not there yet."""
    repo, revision = _parts(name)
    # Slow to import, and needed by nobody else.
    from huggingface_hub import snapshot_download

    folder = None
    for kind in WEIGHTS:
        try:
            wanted = [*DESCRIPTIONS, *kind]
            folder = Path(snapshot_download(repo, revision=revision, allow_patterns=wanted, tqdm_class=_progress()))
        except Exception as error:  # beside its own errors, whatever its HTTP library and the disk raise
            _refuse(error, repo, revision)
        if any((folder / file).is_file() for file in kind[:2]):
            return folder
    raise VitscopeError(
        f"'{repo}' holds no weights that can be read here",
        where=f"{_place(repo, revision)}; looked for {' and '.join(kind[0] for kind in WEIGHTS)}",
        fix="name another model, or load a weights file of it by itself: load_model(file, config=the name of a model)",
    )


def _progress() -> type[Any] | None:
    """The hub's own progress bar, or where nobody watches, a silent one."""
    if sys.stderr.isatty():
        return None
    from huggingface_hub.utils import tqdm

    class Silent(tqdm):
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **{**settings, "disable": True})

    return Silent


def _parts(name: str) -> tuple[str, str | None]:
    """Owner and name, and the revision where one is given."""
    text = name
    for prefix in PREFIXES:
        text = text.removeprefix(prefix)
    found = NAME.fullmatch(text)
    if found is None:
        raise VitscopeError(
            f"'{name}' is no name of a model on the hub",
            where="load_model",
            fix="write owner/name, such as timm/vit_base_patch16_224.augreg2_in21k_ft_in1k, or owner/name@revision",
        )
    return found["repo"], found["revision"]


def _place(repo: str, revision: str | None) -> str:
    """What was tried."""
    from huggingface_hub import constants

    at = "" if revision is None else f" at '{revision}'"
    return f"{constants.ENDPOINT}/{repo}{at}, and the cache {constants.HF_HUB_CACHE}"


def _refuse(error: Exception, repo: str, revision: str | None) -> NoReturn:
    """Say what went wrong, where, and how to do without the hub."""
    from huggingface_hub import constants, errors

    local = "or give a local folder with its config.json and model.safetensors: load_model(folder)"
    if isinstance(error, errors.GatedRepoError):
        what = f"'{repo}' is only for those whom its owner has let in"
        fix = f"ask for access at {constants.ENDPOINT}/{repo} and log in (`hf auth login`), {local}"
    elif isinstance(error, errors.RevisionNotFoundError):
        what, fix = f"'{repo}' has no revision '{revision}'", f"leave it out for the newest, {local}"
    elif isinstance(error, errors.RepositoryNotFoundError):
        what = f"there is no folder or file '{repo}' here, and no such model on the hub (or it is private)"
        fix = f"check the name; log in where it is private (`hf auth login`), {local}"
    elif constants.HF_HUB_OFFLINE:
        what = f"'{repo}' is not in the cache, or not all of it, and the hub is switched off (HF_HUB_OFFLINE)"
        fix = f"unset HF_HUB_OFFLINE once to fetch it, {local}"
    else:
        cause = error.__cause__ if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ else error
        said = (str(cause).strip().splitlines() or [""])[0][:300]
        what = f"'{repo}' could not be fetched: {type(cause).__name__}{f': {said}' if said else ''}"
        fix = f"check the connection and try again, {local}"
    raise VitscopeError(what, where=_place(repo, revision), fix=fix) from None
