"""Networks the doctor was not tuned on, as timm, torchvision, transformers and courses have them, with their usual
optimisers and rates on CIFAR-10: what does it say of them?

    OMP_NUM_THREADS=1 python bench/doctor/strangers.py --quick                   # about 7 minutes on one core
    OMP_NUM_THREADS=1 python bench/doctor/strangers.py --quick --only 'tv/*'
    OMP_NUM_THREADS=1 python bench/doctor/strangers.py --quick --prove           # and train what is called unwell

Nobody knows beforehand which of them are healthy: made for pictures of 224 pixels, some are not at 32. So `--prove`
trains those that are called unwell for some epochs, at their own rate and at the one that is proposed instead.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

import timm
import torch
import torchvision
import transformers
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

import vitscope
from networks import EncoderViT, plain_cnn
from pictures import Pictures, draw

TRAIN, VAL, EPOCHS = 5000, 1000, 4
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


@dataclass(frozen=True)
class Stranger:
    """A network and how it is usually trained."""

    name: str
    make: Callable[[], nn.Module]
    optimizer: str
    lr: float
    batch: int = 128
    is_augmented: bool = True

    def optimizer_of(self, model: nn.Module, lr: float) -> torch.optim.Optimizer:
        match self.optimizer:
            case "sgd":
                return torch.optim.SGD(model.parameters(), lr, momentum=0.9, weight_decay=5e-4)
            case "plain sgd":
                return torch.optim.SGD(model.parameters(), lr, momentum=0.9)
            case "rmsprop":
                return torch.optim.RMSprop(model.parameters(), lr)
            case "adam":
                return torch.optim.Adam(model.parameters(), lr)
        return torch.optim.AdamW(model.parameters(), lr, weight_decay=0.05)


class Rows(Dataset[tuple[Tensor, int]]):
    """Normalised, and varied where that is asked for."""

    def __init__(self, pictures: Pictures, *, is_augmented: bool = False) -> None:
        self.pictures = pictures
        varied = [v2.RandomCrop(32, 4), v2.RandomHorizontalFlip()] if is_augmented else []
        self.prepared = v2.Compose([*varied, v2.Normalize(MEAN, STD)])

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index >= len(self):
            raise IndexError(index)
        return self.prepared(self.pictures.images[index]), int(self.pictures.labels[index])


class OfHuggingFace(nn.Module):
    """As people wrap them: pictures in, logits out."""

    def __init__(self) -> None:
        super().__init__()
        self.vit = transformers.ViTForImageClassification(
            transformers.ViTConfig(
                hidden_size=192,
                num_hidden_layers=6,
                num_attention_heads=3,
                intermediate_size=768,
                image_size=32,
                patch_size=4,
                num_labels=10,  # pyright: ignore[reportCallIssue]
            )
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.vit(pixel_values=images).logits


class Attention(nn.Module):
    """Under the names many hand-written ViTs have."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.norm = nn.LayerNorm(dim)
        self.to_qkv, self.to_out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in self.to_qkv(self.norm(tokens)).chunk(3, dim=-1)
        )
        weights = (q @ k.transpose(-1, -2) * self.scale).softmax(-1)
        return self.to_out((weights @ v).transpose(1, 2).flatten(2))


class HandmadeViT(nn.Module):
    """First weights as PyTorch gives them; positions and class token of deviation 1."""

    def __init__(self, dim: int = 192, depth: int = 6) -> None:
        super().__init__()
        self.to_tokens = nn.Conv2d(3, dim, 4, 4)
        self.positions, self.cls = nn.Parameter(torch.randn(1, 65, dim)), nn.Parameter(torch.randn(1, 1, dim))
        self.attentions = nn.ModuleList(Attention(dim, 3) for _ in range(depth))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
            for _ in range(depth)
        )
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 10))

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.to_tokens(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls.expand(len(tokens), -1, -1), tokens], dim=1) + self.positions
        for attention, mlp in zip(self.attentions, self.mlps, strict=True):
            tokens = tokens + attention(tokens)
            tokens = tokens + mlp(tokens)
        return self.head(tokens[:, 0])


class LeNet(nn.Module):
    """PyTorch's first tutorial."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(images)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


def tv(name: str) -> Callable[[], nn.Module]:
    return lambda: torchvision.models.get_model(name, num_classes=10)


def of_timm(name: str, **settings: Any) -> Callable[[], nn.Module]:
    return lambda: timm.create_model(name, num_classes=10, **settings)


def resnet18_for_cifar() -> nn.Module:
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]
    return model


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(3072, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)
    )


SMALL: dict[str, Any] = {"img_size": 32, "patch_size": 4, "depth": 6}
SWIN: dict[str, Any] = {"img_size": 32, "patch_size": 2, "window_size": 4, "embed_dim": 48}
SWIN |= {"depths": (2, 2, 2), "num_heads": (2, 4, 8)}
STRANGERS = (
    Stranger("tv/resnet18", tv("resnet18"), "sgd", 0.1),
    Stranger("tv/resnet18", tv("resnet18"), "sgd", 0.01, 64),
    Stranger("tv/resnet18", tv("resnet18"), "adam", 1e-3, 64, False),
    Stranger("tv/resnet18", tv("resnet18"), "rmsprop", 1e-3, 64),
    Stranger("tv/resnet18, 3x3 stem", resnet18_for_cifar, "sgd", 0.1),
    Stranger("tv/resnet18, 3x3 stem", resnet18_for_cifar, "sgd", 0.05),
    Stranger("tv/mobilenet_v2", tv("mobilenet_v2"), "sgd", 0.05),
    Stranger("tv/mobilenet_v3_small", tv("mobilenet_v3_small"), "adamw", 1e-3, 64),
    Stranger("tv/shufflenet_v2_x0_5", tv("shufflenet_v2_x0_5"), "sgd", 0.1),
    Stranger("tv/vgg11_bn", tv("vgg11_bn"), "sgd", 0.05),
    Stranger("tv/squeezenet1_1", tv("squeezenet1_1"), "adam", 1e-4, 64, False),
    Stranger("tv/efficientnet_b0", tv("efficientnet_b0"), "adamw", 1e-3, 64),
    Stranger("timm/vit_tiny_patch16_224, patch 4", of_timm("vit_tiny_patch16_224", **SMALL), "adamw", 1e-3),
    Stranger("timm/vit_tiny_patch16_224, patch 4", of_timm("vit_tiny_patch16_224", **SMALL), "adamw", 3e-4, 64, False),
    Stranger("timm/deit_tiny_patch16_224, patch 4", of_timm("deit_tiny_patch16_224", **SMALL), "adam", 1e-3),
    Stranger("timm/cait_xxs24_224, patch 4", of_timm("cait_xxs24_224", **SMALL), "adamw", 1e-3),
    Stranger("timm/swin_tiny, patch 2", of_timm("swin_tiny_patch4_window7_224", **SWIN), "adamw", 1e-3),
    Stranger("timm/xcit_nano_12_p8_224", of_timm("xcit_nano_12_p8_224", img_size=32), "adamw", 5e-4, 64),
    Stranger("timm/mobilevit_xxs", of_timm("mobilevit_xxs"), "adamw", 1e-3, 64),
    Stranger("timm/convnext_atto", of_timm("convnext_atto"), "adamw", 4e-3),
    Stranger("timm/convnext_atto", of_timm("convnext_atto"), "adamw", 1e-3),
    Stranger("timm/poolformer_s12", of_timm("poolformer_s12"), "adamw", 1e-3, 64),
    Stranger("timm/mixer_b16_224", of_timm("mixer_b16_224", img_size=32, num_blocks=4), "adamw", 1e-3, 128, False),
    Stranger("timm/efficientnet_lite0", of_timm("efficientnet_lite0"), "sgd", 0.1),
    Stranger("timm/regnetx_002", of_timm("regnetx_002"), "sgd", 0.1),
    Stranger("timm/nf_resnet26", of_timm("nf_resnet26"), "sgd", 0.05),
    Stranger("timm/resnet14t", of_timm("resnet14t"), "adamw", 1e-3, 64),
    Stranger("transformers/ViT", OfHuggingFace, "adamw", 3e-4, 64),
    Stranger("by hand/ViT", HandmadeViT, "adam", 1e-3),
    Stranger("by hand/ViT", HandmadeViT, "adamw", 1e-4),
    Stranger(
        "by hand/TransformerEncoder, post-norm",
        lambda: EncoderViT(img_size=32, patch_size=4, norm_first=False),
        "adamw",
        3e-4,
    ),
    Stranger("by hand/LeNet", LeNet, "plain sgd", 1e-3, 4, False),
    Stranger("by hand/LeNet", LeNet, "adam", 1e-3, 64, False),
    Stranger("by hand/CNN", plain_cnn, "plain sgd", 0.01, 64),
    Stranger("by hand/MLP", mlp, "plain sgd", 0.01, 64, False),
    Stranger(
        "by hand/logistic regression", lambda: nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)), "sgd", 0.01, 64, False
    ),
)


def examined(one: Stranger, train: Pictures, val: Pictures, *, quick: bool) -> dict[str, Any]:
    torch.manual_seed(0)
    model = one.make()
    report = vitscope.check_up(
        model,
        DataLoader(Rows(train, is_augmented=one.is_augmented), one.batch, shuffle=True),
        val_loader=DataLoader(Rows(val), 256),
        loss=nn.CrossEntropyLoss(),
        optimizer=one.optimizer_of(model, one.lr),
        quick=quick,
    )
    return report.as_json()


def trained(one: Stranger, lr: float, train: Pictures, val: Pictures) -> Iterator[float]:
    """Validation accuracy after each epoch."""
    torch.manual_seed(0)
    model = one.make()
    optimizer = one.optimizer_of(model, lr)
    loader = DataLoader(Rows(train, is_augmented=one.is_augmented), one.batch, shuffle=True, drop_last=True)
    for _ in range(EPOCHS):
        model.train()
        for images, labels in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = sum(int((model(images).argmax(1) == labels).sum()) for images, labels in DataLoader(Rows(val), 256))
        yield right / len(val)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="quick examinations; full ones without it")
    parser.add_argument("--only", default="*", help="names that fit this pattern")
    parser.add_argument("--prove", action="store_true", help=f"train those called unwell for {EPOCHS} epochs")
    wish = parser.parse_args()
    train, val = draw("cifar10", 0, img_size=32, in_chans=3, train=TRAIN, val=VAL)
    verdicts: list[str] = []
    for one in (one for one in STRANGERS if fnmatch(one.name, wish.only)):
        began = time.perf_counter()
        said = examined(one, train, val, quick=wish.quick)
        verdicts.append(said["verdict"])
        causes = ", ".join(f"{found['cause']} ({found['confidence']:.0%})" for found in said["findings"])
        seconds = time.perf_counter() - began
        print(
            f"{one.name:38} {one.optimizer:9} {one.lr:<6g} {said['verdict']:12} {seconds:5.0f} s  {causes}", flush=True
        )
        if not (wish.prove and said["verdict"] == "unwell"):
            continue
        proposed = [found["numbers"].get("proposal") for found in said["findings"]]
        for lr in (one.lr, *(lr for lr in proposed if lr)):
            accuracies = ", ".join(f"{share:.1%}" for share in trained(one, lr, train, val))
            print(f"    trained at {lr:g}: {accuracies} on validation", flush=True)
    print(", ".join(f"{verdicts.count(name)} {name}" for name in dict.fromkeys(verdicts)))


if __name__ == "__main__":
    main()
