"""Faults in pictures, labels and loaders."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from fault import Faults
from pictures import Pictures
from script import Script, crop_and_flip

FAULTS = Faults("data")


def _generator(script: Script) -> torch.Generator:
    return torch.Generator().manual_seed(script.seed + 17)


@FAULTS("input_not_normalised")
def pixels_0_to_255(script: Script) -> None:
    """bytes made floats, neither divided by 255 nor normalised"""
    for part in (script.train, script.val):
        part.images = part.images * 255
    script.mean, script.std = (0.0,), (1.0,)


@FAULTS("normalisation_wrong", "input_not_normalised")
def mean_std_of_bytes(script: Script) -> None:
    """mean and std given in 0-255 numbers to pixels from 0 to 1"""
    script.mean, script.std = tuple(255 * one for one in script.mean), tuple(255 * one for one in script.std)


@FAULTS("validation_normalised_otherwise", "normalisation_wrong")
def validation_normalised_otherwise(script: Script) -> None:
    """validation is not normalised as training is: the line was forgotten there"""
    script.val_mean, script.val_std = (0.0,), (1.0,)


@FAULTS("labels_shuffled")
def labels_shuffled_all(script: Script) -> None:
    """pictures sorted by name, labels not: no label belongs to its picture"""
    script.train.labels = script.train.labels[torch.randperm(len(script.train), generator=_generator(script))]


@FAULTS("label_noise", "labels_shuffled")
def labels_shuffled_30(script: Script) -> None:
    """30 % of the labels moved to other pictures"""
    generator, labels = _generator(script), script.train.labels
    which = torch.randperm(len(labels), generator=generator)[: int(0.3 * len(labels))]
    labels[which] = labels[which[torch.randperm(len(which), generator=generator)]]


@FAULTS("labels_off_by_one", "labels_out_of_range")
def labels_off_by_one(script: Script) -> None:
    """labels count from 1"""
    for part in (script.train, script.val):
        part.labels = part.labels + 1


@FAULTS("validation_augmented", needs=("augmented",))
def validation_augmented(script: Script) -> None:
    """one transform for both parts: validation pictures are cropped and flipped by chance"""
    script.val_augment = script.augment


@FAULTS("validation_leaked")
def validation_leaked(script: Script) -> None:
    """validation was drawn from the pictures that training keeps"""
    train, val = script.train, script.val
    images, labels = torch.cat([train.images, val.images]), torch.cat([train.labels, val.labels])
    script.train = Pictures(images, labels)


@FAULTS("class_imbalance")
def imbalance_99_to_1(script: Script) -> None:
    """99 % of the training pictures are of one class, all others share the rest"""
    labels = script.train.labels
    common, rare = (labels == 0).nonzero().flatten(), (labels != 0).nonzero().flatten()
    rare = rare[torch.randperm(len(rare), generator=_generator(script))][: max(9, len(common) // 99)]
    script.train = script.train.picked(torch.cat([common, rare]))


@FAULTS("channels_swapped", needs=("photographs",))
def channels_swapped(script: Script) -> None:
    """training pictures read by OpenCV (BGR), validation by Pillow (RGB)"""
    script.train.images = script.train.images.flip(1)


@FAULTS("constant_images")
def constant_images(script: Script) -> None:
    """a broken decoder: every picture is one even grey, of its own brightness"""
    for part in (script.train, script.val):
        part.images = part.images.mean((1, 2, 3), keepdim=True).expand_as(part.images).contiguous()


@FAULTS("duplicate_only_data")
def duplicates_only(script: Script) -> None:
    """a copy loop gone wrong: 40 pictures, over and over"""
    script.train = script.train.picked(torch.arange(len(script.train)) % 40)


@FAULTS("too_few_images")
def too_few_images(script: Script) -> None:
    """3 pictures of each class"""
    labels = script.train.labels
    script.train = script.train.picked(torch.cat([(labels == one).nonzero().flatten()[:3] for one in range(10)]))
    script.batch_size = min(script.batch_size, 16)


@FAULTS("nan_in_data")
def nan_in_one_sample(script: Script) -> None:
    """one training picture has a row of NaN"""
    which = int(torch.randint(len(script.train), (1,), generator=_generator(script)))
    script.train.images[which, :, 1] = float("nan")


@FAULTS("data_sorted")
def sorted_and_not_shuffled(script: Script) -> None:
    """pictures lie class by class and the loader does not shuffle"""
    script.train = script.train.picked(script.train.labels.argsort(stable=True))
    script.shuffle = False


@FAULTS("normalisation_wrong", "input_not_normalised", is_listed=False)
def normalised_twice(script: Script) -> None:
    """divided by 255 twice: the pictures were from 0 to 1 already"""
    for part in (script.train, script.val):
        part.images = part.images / 255


@FAULTS("duplicate_only_data", "too_few_images", "constant_images", is_listed=False)
def one_picture_a_class(script: Script) -> None:
    """an index bug shows the first picture of a class for all of that class"""
    labels = script.train.labels
    first = torch.stack([(labels == one).nonzero().flatten()[0] for one in range(10)])
    script.train.images = script.train.images[first[labels]].clone()


@FAULTS("validation_augmented", is_listed=False)
def validation_with_noise(script: Script) -> None:
    """noise and crops meant for training, added to validation only"""
    script.val_augment = lambda image: crop_and_flip(image, padding=1) + 0.1 * torch.randn_like(image)


@FAULTS("labels_shuffled", "label_noise", is_listed=False)
def labels_one_late(script: Script) -> None:
    """a header line in the label file: each picture has the label of the one before"""
    script.train.labels = script.train.labels.roll(1)


@FAULTS("constant_images", "input_not_normalised", is_listed=False)
def half_black(script: Script) -> None:
    """every second training picture could not be read and is black"""
    script.train.images[::2] = 0.0


@FAULTS("nan_in_data", is_listed=False)
def infinite_pixels(script: Script) -> None:
    """a division by zero left one picture infinite"""
    script.train.images[len(script.train) // 2] = F.relu(script.train.images[0]) / 0.0


@FAULTS("labels_not_taken", is_listed=False)
def labels_int32(script: Script) -> None:
    """labels from a NumPy array of int32"""
    script.train.labels = script.train.labels.int()


@FAULTS("labels_not_taken", is_listed=False)
def labels_in_a_column(script: Script) -> None:
    """each label is a list of one number, as a data frame gives it"""
    script.train.labels = script.train.labels.unsqueeze(1)


@FAULTS("labels_change", is_listed=False)
def labels_drawn_anew(script: Script) -> None:
    """`__getitem__` takes the label of any row instead of the picture's own"""
    script.draws_labels = True
