"""`vitscope train`: what typed words make of a recipe, a file or the defaults, and what is said before and after."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from vitscope.cli.main import main
from vitscope.core.config import to_dict, updated
from vitscope.core.run_folder import RunFolder
from vitscope.core.yaml import from_yaml, to_yaml
from vitscope.data.config import DataConfig, PreprocessConfig, augmentation
from vitscope.doctor.monitor import Monitor
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.models.variants import model_config
from vitscope.recipes import RECIPES, find_recipe
from vitscope.train.config import LoopConfig, TrainConfig, named_model
from vitscope.train.signals import StopFlag
from vitscope.weights.folder import save_model
from vitscope.weights.pretrained import PRETRAINED


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def resolved(capsys: pytest.CaptureFixture[str], *args: str) -> TrainConfig:
    """The settings `args` make, as --print-config tells them."""
    assert main(["train", *args, "--print-config"]) == 0, capsys.readouterr().err
    out, err = capsys.readouterr()
    assert err == ""
    return from_yaml(TrainConfig, out)


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> list[str]:
    assert main(["train", *args]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 3, err
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("where: ")
    assert lines[2].startswith("to do: ")
    return lines


# --- from words to settings -------------------------------------------------------------------------------------


def test_a_recipe_alone_is_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert resolved(capsys, "digits_vit") == find_recipe("digits_vit")()


def test_without_a_recipe_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert resolved(capsys, "--data", "shapes") == TrainConfig(data=DataConfig(name="shapes"))


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("--data shapes", "--data.name shapes"),
        ("--epochs 3", "--loop.epochs 3"),
        ("--batch-size 7", "--data.batch-size 7"),
        ("--lr 0.5", "--optim.lr 0.5"),
        ("--seed 9", "--loop.seed 9"),
        ("--device cpu", "--loop.device cpu"),
        ("--teacher some/run", "--loss.teacher some/run"),
        ("--deterministic", "--precision.deterministic"),
        ("--model swin_tiny_patch4_window7_224", "--model.name swin_tiny_patch4_window7_224"),
        ("--epochs=3", "--loop.epochs=3"),
        ("--batch_size 7", "--data.batch_size 7"),
    ],
)
def test_short_flags_are_aliases(short: str, long: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = resolved(capsys, "digits_vit", *short.split())
    assert told == resolved(capsys, "digits_vit", *long.split())
    assert told != find_recipe("digits_vit")()


def test_each_short_flag_changes_its_setting_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    before = find_recipe("digits_vit")()
    told = resolved(capsys, "digits_vit", "--epochs", "3", "--lr", "1e-4")
    wanted = updated(before, loop=updated(before.loop, epochs=3), optim=updated(before.optim, lr=1e-4))
    assert told == wanted


def test_a_model_by_name_keeps_nothing_of_the_old_one(capsys: pytest.CaptureFixture[str]) -> None:
    told = resolved(capsys, "digits_vit", "--model", "resnet18")
    assert told.model == named_model("resnet18")
    assert told.data == find_recipe("digits_vit")().data


def test_settings_apply_to_the_model_that_was_named(capsys: pytest.CaptureFixture[str]) -> None:
    told: Any = resolved(capsys, "--model.depth", "3", "--data", "digits", "--model", "vit_small").model
    assert told == named_model("vit_small", updated(model_config("vit_small"), depth=3))
    swin: Any = resolved(
        capsys, "--data", "digits", "--model", "swin_tiny_patch4_window7_224", "--model.embed-dim", "48"
    )
    assert swin.model.embed_dim == 48
    assert swin.model.family == "swin"


@pytest.mark.parametrize(("side", "wanted"), [("32", 32), ("224", 224)])
def test_a_strength_is_resolved_for_the_size_the_model_ends_up_with(
    side: str, wanted: int, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("--data", "digits", "--augment", "strong", "--model.img-size", side)
    assert resolved(capsys, *args).augment == augmentation("strong", wanted)
    assert augmentation("strong", 32) != augmentation("strong", 224)
    refined = resolved(capsys, *args, "--augment.flip", "none").augment
    assert refined == updated(augmentation("strong", wanted), flip="none")


@pytest.mark.parametrize(
    "args",
    [
        "--epochs 3 digits_vit",
        "--deterministic digits_vit",
        "--json digits_vit",
        "--augment.jitter 0.1 0.1 0.1 0.1 digits_vit",
        "--precision.tf32 digits_vit",
        "--precision.no-tf32 digits_vit",
    ],
)
def test_the_recipe_may_come_after_flags(args: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for word in args.split() if word not in ("digits_vit", "--json")]
    assert resolved(capsys, *[word for word in args.split() if word != "--json"]) == resolved(
        capsys, "digits_vit", *words
    )


def test_a_folder_may_be_called_like_a_recipe(capsys: pytest.CaptureFixture[str], fitted: Fitted) -> None:
    assert main(["train", "--data", "shapes", "--out", "digits_vit"]) == 0
    assert fitted.asked["out"] == "digits_vit"
    assert fitted.config == TrainConfig(data=DataConfig(name="shapes"))


def test_rules_between_sections_are_asked_after_all_flags(capsys: pytest.CaptureFixture[str]) -> None:
    """Each of the two alone would break one."""
    told = resolved(capsys, "digits_vit", "--batch-size", "500", "--loop.micro-batch", "250")
    assert (told.data.batch_size, told.loop.micro_batch) == (500, 250)
    lines = refused(capsys, "digits_vit", "--batch-size", "10", "--loop.micro-batch", "25", "--print-config")
    assert lines[0] == "error: loop.micro_batch: expected at most data.batch_size, 10, received 25"


def test_printed_settings_are_a_file_that_repeats_them(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = resolved(capsys, "digits_vit", "--lr", "0.003", "--augment", "medium")
    (here / "mine.yaml").write_text(to_yaml(wanted))
    assert resolved(capsys, "mine.yaml") == wanted
    assert resolved(capsys, "--epochs", "2", "mine.yaml").loop.epochs == 2
    assert main(["train", "mine.yaml", "--print-config", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["optim"]["lr"] == 0.003


# --- starting from a model --------------------------------------------------------------------------------------


@pytest.fixture
def saved(here: Path) -> Path:
    """A run's folder with a model of its own."""
    settings = ViTConfig(
        img_size=16, patch_size=4, in_chans=1, num_classes=3, embed_dim=24, depth=2, num_heads=2, drop_rate=0.2
    )
    seen = PreprocessConfig(
        img_size=(16, 16),
        in_chans=1,
        crop="squash",
        crop_share=0.9,
        interpolation="bilinear",
        resizer="tensor",
        mean=(0.1,),
        std=(0.3,),
    )
    run = here / "runs" / "old-001"
    run.mkdir(parents=True)
    model = updated(named_model("vit_tiny", settings))
    (run / "config.yaml").write_text(to_yaml(TrainConfig(model=model)))
    save_model(build_model(settings), run / "model", preprocessing=seen)
    return run


@pytest.mark.parametrize("inside", ["", "model"])
def test_from_takes_the_model_and_how_pictures_are_prepared(
    inside: str, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(saved / inside)
    told: Any = resolved(capsys, "--data", "shapes", "--from", source, "--model.drop-rate", "0.1")
    assert told.checkpoint.init_from == source
    assert told.model.name == "vit_tiny"
    assert (told.model.embed_dim, told.model.depth, told.model.drop_rate) == (24, 2, 0.1)
    data = told.data
    assert (data.name, data.mean, data.std, data.interpolation) == ("shapes", (0.1,), (0.3,), "bilinear")
    assert (data.resize, data.crop_share, data.resizer) == ("squash", 0.9, "tensor")
    prepared = data.preprocess(told.model.img_size, told.model.in_chans)
    assert prepared == PreprocessConfig(**to_dict(prepared))
    assert told == resolved(capsys, "--data", "shapes", "--checkpoint.init-from", source, "--model.drop-rate", "0.1")


def test_from_beside_a_recipe_and_flags(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told: Any = resolved(capsys, "digits_vit", "--from", str(saved), "--data.crop-share", "1.0")
    assert told.model.embed_dim == 24
    assert told.optim == find_recipe("digits_vit")().optim
    assert told.data.crop_share == 1.0
    assert told.data.mean == (0.1,)


def test_a_model_named_beside_from_wins(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = resolved(capsys, "--data", "shapes", "--from", str(saved), "--model", "mnist_cnn")
    assert told.model == named_model("mnist_cnn")
    assert told.checkpoint.init_from == str(saved)


@pytest.mark.parametrize("typed", [("--model", "vit_small"), ("--model.in-chans", "3")])
def test_a_model_for_other_channels_gets_their_normalisation(
    typed: tuple[str, str], saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Weights can be moved to other channels; whether the layers are the same is seen with the data."""
    told: Any = resolved(capsys, "--data", "shapes", "--from", str(saved), *typed)
    assert told.model.in_chans == 3
    prepared = told.data.preprocess(told.model.img_size, 3)
    assert prepared.mean == pytest.approx((0.1, 0.1, 0.1))
    assert prepared.std == pytest.approx((0.3, 0.3, 0.3))
    own = resolved(capsys, "--data", "shapes", "--from", str(saved), *typed, "--data.mean", "0.2", "0.3", "0.4")
    assert own.data.mean == (0.2, 0.3, 0.4)


def test_a_weights_file_needs_a_model_beside_it(saved: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_file(build_model(model_config("vit_tiny_patch16_224")).state_dict(), here / "bare.safetensors")
    lines = refused(capsys, "--data", "shapes", "--from", "bare.safetensors")
    assert lines[0] == "error: a bare weights file does not say which model it is for"
    assert lines[2].startswith(
        "to do: name it with --model, or a folder that describes it; by their shapes these fit: "
    )
    assert "vit_tiny_patch16_224" in lines[2]
    told = resolved(capsys, "--data", "shapes", "--from", "bare.safetensors", "--model", "vit_tiny_patch16_224")
    assert told.model == named_model("vit_tiny_patch16_224")
    assert told.checkpoint.init_from == "bare.safetensors"


def test_a_folder_may_describe_the_model_of_a_weights_file(
    saved: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And of a folder that holds nothing but weights; pictures are prepared as the description has it."""
    (here / "alone").mkdir()
    shutil.copy(saved / "model/model.safetensors", here / "alone")
    shutil.copy(saved / "model/model.safetensors", here / "bare.safetensors")
    whole: Any = resolved(capsys, "--data", "shapes", "--from", str(saved))
    for source in ("bare.safetensors", "alone"):
        for described in (str(saved), str(saved / "model"), str(saved / "model/config.json")):
            told: Any = resolved(capsys, "--data", "shapes", "--from", source, "--model", described)
            assert told == updated(whole, checkpoint=updated(whole.checkpoint, init_from=source))
    lines = refused(capsys, "--data", "shapes", "--model", str(saved))
    assert lines[2].startswith(f"to do: `--from {saved}` begins with its model and weights")
    lines = refused(capsys, "--data", "shapes", "--model", str(saved / "model/config.json"))
    assert lines[2].startswith(f"to do: `--from {saved / 'model'}` begins with its model and weights")


def test_a_file_of_a_model_folder_stands_for_it(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole: Any = resolved(capsys, "--data", "shapes", "--from", str(saved / "model"))
    for name in ("model.safetensors", "config.json"):
        assert resolved(capsys, "--data", "shapes", "--from", str(saved / "model" / name)) == whole


def test_pictures_for_a_file_of_metas_are_normalised_as_their_code_does(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = build_model(model_config("vit_tiny_patch16_224")).state_dict()
    save_file(tensors, here / "anybodys.safetensors")
    save_file({**tensors, "head.mlp.0.weight": torch.zeros(2, 2)}, here / "dino.safetensors")
    for source, mean in (("dino", (0.485, 0.456, 0.406)), ("anybodys", None)):
        named = ("--from", f"{source}.safetensors", "--model", "vit_tiny_patch16_224")
        assert resolved(capsys, "--data", "shapes", *named).data.mean == mean


def test_a_folder_that_hides_a_name_of_the_hub_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "timm").mkdir()
    lines = refused(capsys, "--data", "shapes", "--from", "timm/vit_tiny_patch16_224.augreg_in21k")
    assert lines[2] == "to do: if the model on the hub is meant: hf-hub:timm/vit_tiny_patch16_224.augreg_in21k"


def test_a_mistyped_run_is_told_what_is_there_before_the_hub(
    saved: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(saved, here / "runs/first-try")
    shutil.copytree(saved / "model", here / "runs/taken")
    hub = "; if the model on the hub is meant: hf-hub:runs"
    lines = refused(capsys, "--data", "shapes", "--from", "runs/first-tyr")
    assert "first-try" in lines[2].removesuffix(f"{hub}/first-tyr")
    assert lines[2].endswith(f"{hub}/first-tyr")
    lines = refused(capsys, "--data", "shapes", "--from", "runs/nope")
    assert lines[2] == f"to do: 'runs' holds first-try, old-001, taken{hub}/nope"


@pytest.mark.parametrize("flag", ["--from", "--model"])
def test_a_name_no_file_can_have(flag: str, saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--from", str(saved)) if flag == "--model" else ()
    assert "cannot be looked at: File name too long" in refused(capsys, "--data", "shapes", *given, flag, "x" * 300)[0]


def test_the_name_of_a_model_is_no_source_but_its_published_weights_are(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = refused(capsys, "--data", "shapes", "--from", "vit_small")
    assert lines[2].endswith(f"`--model vit_small --from {PRETRAINED['vit_small'].hub}` from published ones")


def test_a_file_with_a_start_keeps_its_own_model(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = resolved(capsys, "--data", "shapes", "--from", str(saved), "--model.drop-rate", "0.1")
    Path("again.yaml").write_text(to_yaml(told))
    assert resolved(capsys, "again.yaml") == told
    assert resolved(capsys, "again.yaml", "--checkpoint.init-from", "None").checkpoint.init_from is None


# --- running ----------------------------------------------------------------------------------------------------


class Fitted:
    """Stands in for the engine: writes down what it is asked for."""

    def __init__(self, here: Path) -> None:
        self.here, self.config, self.asked = here, TrainConfig(), {}
        self.state, self.exit_code = "finished", 0

    def fit(self, config: TrainConfig, **asked: Any) -> Any:
        self.config, self.asked = config, asked
        run = RunFolder(self.here / "runs" / "new 1")
        for folder in (run.plots, run.model):
            folder.mkdir(parents=True, exist_ok=True)
        run.write_status(self.state)
        ended = self.state == "finished"
        best = {"step": 30, "epoch": 3, "val/accuracy": 0.9512, "val/loss": 0.2}
        test = {"step": 40, "epoch": 4, "test/accuracy": 0.94567, "test/loss": float("nan"), "test/count": 1359}
        return SimpleNamespace(
            folder=run,
            metrics=[],
            best=best,
            test=test if ended else None,
            model_folder=run.model,
            exit_code=self.exit_code,
            state=self.state,
        )


@pytest.fixture
def fitted(here: Path, monkeypatch: pytest.MonkeyPatch) -> Fitted:
    stand_in = Fitted(here)
    module = ModuleType("vitscope.train.fit")
    module.fit = stand_in.fit  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "vitscope.train.fit", module)
    return stand_in


def test_the_engine_gets_everything(fitted: Fitted, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "digits_vit", "--epochs", "2", "--out", "a b", "--overwrite"]) == 0
    assert fitted.config.loop.epochs == 2
    asked = fitted.asked
    assert isinstance(asked.pop("stop"), StopFlag)
    assert asked == {
        "out": "a b",
        "name": "digits_vit",
        "resume": False,
        "resume_from": None,
        "overwrite": True,
        "command": "vitscope train digits_vit --epochs 2",
        "remarks": [],
        "between_steps": [],
    }


def test_a_monitor_looks_between_steps_where_one_is_asked_for(fitted: Fitted) -> None:
    assert main(["train", "digits_vit", "--monitor"]) == 0
    (probe,) = fitted.asked["between_steps"]
    assert isinstance(probe, Monitor)
    assert fitted.asked["command"] == "vitscope train digits_vit"


@pytest.mark.parametrize(
    ("args", "command"),
    [
        ("digits_vit --out a/b --lr 0.1", "vitscope train digits_vit --lr 0.1"),
        (
            "--out=a/b --json digits_vit --augment.jitter 0 0 0 0.1",
            "vitscope train digits_vit --augment.jitter 0 0 0 0.1",
        ),
        ("digits_vit --resume --out a/b", "vitscope train digits_vit --resume --out RUN"),
        ("--data shapes:size=8 --seed 3", "vitscope train --data shapes:size=8 --seed 3"),
        ("--resume --out old", "vitscope train --resume --out RUN"),
        ("--resume-from best --out old --lr 0.1", "vitscope train --lr 0.1 --resume-from best --out RUN"),
    ],
)
def test_the_command_on_record_tells_what_not_where(args: str, command: str, fitted: Fitted) -> None:
    Path("old").mkdir()
    Path("old/config.yaml").write_text("data: digits\n")
    assert main(["train", *args.split()]) == 0
    assert fitted.asked["command"] == command


def test_the_end_says_how_good_where_and_what_next(fitted: Fitted, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "digits_vit"]) == 0
    first, second, third = capsys.readouterr().out.splitlines()
    best = "best epoch 3 (highest val/accuracy): validation accuracy 95.12%"
    assert first == f"test accuracy 94.57% (1,359 pictures); {best}"
    run = fitted.here / "runs" / "new 1"
    assert second == f"run {run}/, plots {run}/plots/, model {run}/model/"
    assert third == f"next: vitscope eval '{run}'"
    assert shlex.split(third)[1:] == ["vitscope", "eval", str(run)]


@pytest.mark.parametrize("code", [130, 143])
def test_a_stopped_run_says_how_to_go_on(code: int, fitted: Fitted, capsys: pytest.CaptureFixture[str]) -> None:
    fitted.state, fitted.exit_code = "stopped", code
    assert main(["train", "digits_vit"]) == code
    out = capsys.readouterr().out
    assert out.startswith("stopped; best epoch 3 (highest val/accuracy): validation accuracy 95.12%\n")
    run = fitted.here / "runs" / "new 1"
    assert out.splitlines()[-1] == f"next: vitscope train --resume --out '{run}'"


def test_json_is_one_object_without_words_json_lacks(fitted: Fitted, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "digits_vit", "--json"]) == 0
    told = json.loads(capsys.readouterr().out, parse_constant=lambda word: pytest.fail(word))
    assert told["state"] == "finished"
    assert told["test"] == {
        "step": 40, "epoch": 4, "test/accuracy": 0.94567, "test/loss": "NaN", "test/count": 1359
    }  # fmt: skip
    assert told["best"]["val/accuracy"] == 0.9512
    assert told["run"] == str(fitted.here / "runs" / "new 1")


@pytest.mark.parametrize(
    ("args", "name"),
    [
        ("digits_vit", "digits_vit"),
        ("--data some/where/pets.npz --model vit_small", "pets-vit_small"),
        ("mine.yaml", "mine"),
        ("runs/pets-007/config.yaml", "pets"),
    ],
)
def test_a_run_is_called_after_what_it_is(args: str, name: str, fitted: Fitted) -> None:
    for path in (Path("mine.yaml"), Path("runs/pets-007/config.yaml")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("data: digits\n")
    assert main(["train", *args.split()]) == 0
    assert fitted.asked["name"] == name


def test_a_run_can_be_continued_without_its_recipe(fitted: Fitted, capsys: pytest.CaptureFixture[str]) -> None:
    old = TrainConfig(data=DataConfig(name="shapes"), loop=LoopConfig(epochs=17))
    Path("old").mkdir()
    Path("old/config.yaml").write_text(to_yaml(old))
    assert main(["train", "--resume", "--out", "old"]) == 0
    assert fitted.config == old
    assert (fitted.asked["resume"], fitted.asked["out"], fitted.asked["resume_from"]) == (True, "old", None)
    assert main(["train", "--resume-from", "step-000002", "--out", "old", "--epochs", "20"]) == 0
    assert fitted.config == updated(old, loop=LoopConfig(epochs=20))
    assert (fitted.asked["resume"], fitted.asked["resume_from"]) == (False, "step-000002")
    assert main(["train", "--resume", "--out", "old", "digits_vit"]) == 0  # the engine judges whether they agree
    assert fitted.config == find_recipe("digits_vit")()


def test_a_run_and_its_evaluation_without_a_stand_in(shell, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = ("--model.embed-dim", "24", "--model.depth", "1", "--epochs", "1", "--device", "cpu")
    done = shell("train", "digits_vit", *size, "--out", "run", "--json")  # in a process of its own
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["state"], told["run"], told["next"]) == ("finished", "run", "vitscope eval run")
    assert told["test"]["test/count"] == 359

    assert main(["eval", "run", "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == told["test"]["test/accuracy"]

    assert main(["train", "--resume", "--out", "run"]) == 0
    out, err = capsys.readouterr()
    assert "finished" in err
    assert out.startswith(f"test accuracy {told['test']['test/accuracy']:.2%} (359 pictures)")

    assert main(["train", "digits_vit", "--out", "run"]) == 2
    fix = capsys.readouterr().err.splitlines()[-1]
    assert "--resume" in fix
    assert "--overwrite" in fix


# --- looking around ---------------------------------------------------------------------------------------------


def test_the_list_of_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--list"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if line[:1].isalnum()][1:] == list(RECIPES)
    assert main(["train", "--list", "--json"]) == 0
    (row,) = [row for row in json.loads(capsys.readouterr().out) if row["name"] == "digits_vit"]
    assert all(word in out for word in row["about"].split())  # the table may break its lines
    assert row["command"] == "vitscope train digits_vit"
    assert row["images/s"] in out


def test_help_comes_without_torch(shell) -> None:
    done = shell("train", "--help", options=("-X", "importtime"))
    assert done.returncode == 0
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert imported.isdisjoint({"torch", "numpy", "torchvision", "matplotlib", "sklearn"})
    for flag in ("--data", "--from", "--resume-from", "--print-config", "[RECIPE_OR_YAML]"):
        assert flag in done.stdout


def test_settings_are_read_without_torch(shell) -> None:
    done = shell("train", "digits_vit", "--lr", "0.1", "--print-config", options=("-X", "importtime"))
    assert "\n  lr: 0.1\n" in done.stdout
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert imported.isdisjoint({"torch", "numpy"})


def test_help_of_a_recipe_that_needs_flags_needs_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "finetune", "--help"]) == 0
    out = capsys.readouterr().out
    assert "--optim.layer-decay" in out
    assert "0.75" in out


def test_help_of_a_recipe_shows_every_setting_with_its_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "digits_vit", "--model", "swin_tiny_patch4_window7_224", "--epochs", "7", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for flag in ("--model.window-size", "--optim.lr", "--checkpoint.keep", "--augment.flip"):
        assert flag in out
    assert "How many times to go through the training pictures. (default: 7)" in out


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "what", "todo"),
    [
        ("", "--data: expected a data set, as no recipe is named, received nothing", "`vitscope train --data digits`"),
        ("--model vit_tiny", "--data: expected a data set", ""),
        ("digit_vit", "'digit_vit' is neither a recipe nor a YAML file", "did you mean 'digits_vit'?"),
        ("zzzz", "'zzzz' is neither a recipe nor a YAML file", "`vitscope train --list`"),
        ("nowhere.yaml", "cannot read the settings: No such file or directory", "give the path of a YAML file"),
        ("digits_vit --model vit_smal", "unknown model 'vit_smal'", "did you mean 'vit_small'"),
        ("digits_vit --epoch 3", "unknown flag '--epoch'", "did you mean '--epochs'?"),
        ("digits_vit --learning_rate 3", "unknown flag '--learning-rate'", "did you mean '--lr'?"),
        ("digits_vit --depth 3", "unknown flag '--depth'", "did you mean '--model.depth'"),
        ("digits_vit --hidden-size 3", "unknown flag '--hidden-size'", "you mean '--model.embed-dim'"),
        ("digits_vit --model.dpeth 3", "unknown flag '--model.dpeth'", "did you mean '--model.depth'?"),
        ("digits_vit --optm.lr 3", "unknown flag '--optm.lr'", "did you mean '--optim.lr'?"),
        (
            "digits_vit --epochs three",
            "--epochs: expected a whole number, received 'three'",
            "`--epochs 10`, for example",
        ),
        ("digits_vit --epochs 0", "epochs: expected from 1 to 1,000,000, received 0", ""),
        (
            "digits_vit --loop.epochs 1.5",
            "--loop.epochs: expected a whole number, received '1.5'",
            "`--loop.epochs 40`",
        ),
        ("digits_vit --data.mean a", "--data.mean: expected one or more numbers, received 'a'", "`--data.mean 0.1`"),
        (
            "digits_vit --data.mean 5",
            "data.mean: expected numbers from 0 to 1",
            "if pixels are counted from 0 to 255: `--data.mean 0.0196`",
        ),
        (
            "digits_vit --data.mean 125 --data.std 51",
            "data.mean: expected numbers from 0 to 1",
            "if pixels are counted from 0 to 255: `--data.mean 0.49 --data.std 0.2`",
        ),
        (
            "digits_vit --data.mean 0.3 --data.std 51",
            "data.std: expected numbers from 0 to 1",
            "if pixels are counted from 0 to 255: `--data.std 0.2`",
        ),
        (
            "digits_vit --data.mean 300",
            "data.mean: expected numbers from 0 to 1",
            "`--data.normalisation half` needs neither mean nor std",
        ),
        ("digits_vit --data.mean 0.5 0.5", "data.mean: expected 1 number", "`--data.mean 0.5`"),
        ("cifar10_vit_tiny --data.mean 0.2", "data.mean: expected 3 numbers", "`--data.mean 0.2 0.2 0.2`"),
        ("cifar10_vit_tiny --data.mean 5", "data.mean: expected 3 numbers", "`--data.mean 0.5 0.5 0.5`"),
        ("cifar10_vit_tiny --data.std 0.2", "data.std: expected 3 numbers", "`--data.std 0.2 0.2 0.2`"),
        ("digits_vit --augment strnog", "--augment: expected", "did you mean 'strong'?"),
        ("digits_vit --optim.name adamww", "--optim.name: expected one of", "did you mean 'adamw'"),
        ("digits_vit --model.num-heads 5", "num_heads: expected a divisor of embed_dim 96", "nearest that divides"),
        ("digits_vit --model mae_vit_base_patch16", "mae_vit_base_patch16 is no classifier", "`vitscope models`"),
        ("digits_vit --from nowhere", "'nowhere' does not exist", "give a run, a model folder"),
        ("digits_vit --from vit_small", "'vit_small' is the name of a model", "`vitscope train --model vit_small`"),
        ("digits_vit digits_vit", "vitscope train: expected no more, received 'digits_vit'", ""),
        ("--resume", "resume: expected the run's folder as --out, received no --out", "add --out runs/NAME"),
        ("--resume-from last", "resume_from: expected the run's folder as --out", "add --out runs/NAME"),
        ("--resume --out x --overwrite", "resume: expected no --overwrite beside it", "leave one of them out"),
        ("--resume --resume-from last --out x", "resume: expected no --resume-from beside it", ""),
        ("--resume --out nowhere", "'nowhere' does not exist", "give the folder of a run"),
        ("digits_vit --resume-from last --out nowhere", "'nowhere' does not exist", "give the folder of a run"),
        ("--resume digits_vit --out", "--out: expected", ""),
    ],
)
def test_refusals(args: str, what: str, todo: str, fitted: Fitted, capsys: pytest.CaptureFixture[str]) -> None:
    lines = refused(capsys, *args.split())
    assert lines[0].startswith(f"error: {what}")
    assert lines[2].startswith(f"to do: {todo}")
    assert fitted.asked == {}


def test_a_picture_is_no_recipe(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("L", (8, 8)).save("cat.png")
    lines = refused(capsys, "cat.png")
    assert lines[0] == "error: RECIPE_OR_YAML: expected a recipe or a YAML file, received the picture 'cat.png'"
    assert "`vitscope train --data FOLDER` takes many" in lines[2]


def test_a_run_is_no_recipe(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = refused(capsys, "runs/old-001")
    assert "runs/old-001/config.yaml` repeats it" in lines[2]
    assert "--resume --out runs/old-001` continues it" in lines[2]
    lines = refused(capsys, "--data", "digits", "--from", "runs")
    assert lines[2] == "to do: it holds runs; name one, such as runs/old-001"
    lines = refused(capsys, "--data", "digits", "--from", "runs/old-01")
    assert lines[2].startswith("to do: did you mean 'runs/old-001'?")
    lines = refused(capsys, "--data", "digits", "--from", "old-001")
    assert lines[2].startswith("to do: did you mean 'runs/old-001'?")
