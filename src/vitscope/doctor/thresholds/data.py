"""Numbers that pictures and labels are judged by."""

from __future__ import annotations

GLANCE_PICTURES = 65_536
"""Pictures of an epoch that are looked at: all of CIFAR-10 or MNIST."""
GLANCE_SECONDS = 2.0
"""Longest look at a part; a quick examination has 20 s in all."""
GLANCE_KEPT = 2048
"""Pictures kept to compare and to predict labels from. With half as many, 30 % wrong labels cannot be told from healthy
labels of a hard set."""
FEW = 32
"""With fewer pictures than this nothing is said of shares."""
WHOLE_RANGE = 20.0
"""Pixels from 0 to more than this were never brought to about 1: normalised ones stay below 3, bytes go to 255."""
FAR_MEAN = 3.0
"""Mean of a channel that no usual normalisation of pixels from 0 to 1 gives: white is 2.64 under ImageNet's numbers and
2.82 under MNIST's."""
WIDE_STD, NARROW_STD = 2.5, 0.03
"""Spread of a channel's pixels. Half black, half white is 2.18 under ImageNet's numbers, so no picture spreads wider.
Pixels divided by 255 twice have 0.001; the palest healthy set we have (shapes, from 0 to 1) 0.15."""
OTHER_MEAN, OTHER_STD = 1.0, 2.0
"""Between training and validation: distance of means in spreads, and ratio of spreads. Healthy parts, augmented or not,
differ by less than 0.3 and 1.3."""
EXPECTED_MEAN, EXPECTED_STD = 0.1, 1.15
"""Between the normalisation used and the one loaded weights were trained with: distance of means on a scale from 0 to
1, and ratio of stds. CIFAR-10's own numbers against ImageNet's differ by 0.04 and 1.16 and do little; 0.5 against
ImageNet's std differ by 2.2 and cost 5 to 19 points of accuracy."""
FLAT_SHARE = 0.5
"""Of pictures with one colour only. Healthy sets have less than 1 in 1000."""
DISTINCT_SHARE = 0.2
"""Distinct pictures among all: five copies of each. Repeated augmentation and balanced sampling show pictures two to
four times."""
COPIES_SOUGHT = 96
"""Pictures that are looked for among the others kept, shifted or mirrored: a tenth of a second."""
LEAKED_SHARE = 0.05
"""Of validation pictures that training has too. CIFAR-10 has 0.3 % by nature; no healthy set we have reaches 1 %."""
LEAKED_PICTURES = 3
"""Fewer copies across parts are chance."""
STORED_READ, STORED_DECODED, STORED_BYTES, STORED_SECONDS = 65_536, 2048, 200_000_000, 0.5
"""Pictures of a part that are read as they are stored, to look for copies; those of them that may be decoded too, and
the bytes kept for that; and the longest time for reading, and for decoding, a part: 3 s in all of the 20 s of a quick
examination, where files are slow."""
FAIR_GAP, FAIR_CHANCE = 0.15, 1.36
"""How unevenly pictures that were read may lie in their part and still count as a fair sample of it: the first, plus
the second divided by the root of how many they are. Drawn by lot they lie more unevenly less than twice in a thousand
times; the first 80 % of a part are no fair sample."""
WINDOW_SHARE, WINDOW_LEAST = 3 / 8, 5
"""Of a picture's side, and pixels at least: what is looked for of a picture that may be shifted. It stays inside where
a crop moves by 4 of 32 pixels, and two pictures hardly share it by chance."""
WINDOW_PICTURES = 512
"""Of validation that are looked for so."""
WINDOW_SPREAD = 0.3
"""Of the spread of all pixels, within such a window: sky and paper are the same in many pictures."""
SORTED_SHARE = 0.5
"""Classes met in a stretch of training, of those a shuffled order would show, less one. Healthy: 0.95 and more; sorted:
below 0.2."""
SORTED_STRETCH = 32
"""Pictures of a stretch where batches are smaller."""
MAJORITY = 0.95
"""Share of the largest class from which always saying its name looks like success."""
IMBALANCE, IMBALANCE_NOTE = 50.0, 5.0
"""Largest class / smallest class: from the first a finding, from the second a note. ImageNet-LT, made to be hard, has
256; usual sets stay below 10."""
MISSING_PICTURES = 5
"""Validation pictures of a class from which its absence in training is a fault: fewer may be labels that are wrong."""
MISSING_EXPECTED = 30.0
"""Pictures of that class training would have shown by now, if it had it as often as validation: drawn by lot, none of
so many is a chance of e^-30, and e^-3 where training has a tenth of validation's share."""
SWAP_SURE, SWAP_FITS, SWAP_FITS_SHARE = 6.5, 4.5, 0.15
"""Distance between the channels of training and validation: as they are at least the first, in standard errors, and in
another order at most the second, or the third as a share of that. Healthy parts, augmented or not: at most 3.7
(CIFAR-10 against its crops, 512 pictures); swapped: 8.5 (256 of Imagenette) to 24, and 1 to 3.7 in the right order."""
PROBE_PICTURES = 200
"""Fewer pictures with labels cannot show whether labels can be predicted."""
PROBE_PER_CLASS = 15
"""Likewise of each class: with fewer, healthy fine-grained sets are near chance too."""
SHUFFLED_PICTURES = 512
"""Fewer pictures at chance are no more than a possible sign of shuffled labels, unless validation proves that labels
can be predicted: of `shapes` with 27 pictures of each class, labels that are right were at chance in 3 of 6 draws."""
CHANCE_Z = 3.0
"""Standard errors above chance from which labels have to do with pictures. Healthy sets of 1024 pictures are 28
(shapes), 43 (CIFAR-10, Imagenette) and 90 (MNIST, digits) above, shuffled ones at most
0.6."""
CONFIDENT_SHARE = 0.25
"""The pictures whose predicted class leads by most: in healthy sets their labels are almost never among the
least likely classes."""
NOISE_LOW, NOISE_LOW_RISE = 0.045, 0.23
"""Share of those whose label is in the less likely half of the classes: at most the first, and the second for each one
whose label is not predicted, where labels are right. A label drawn by chance is there half the time, whatever the
picture shows. Measured with 2048 pictures, allowed in brackets: shapes 0.09 (0.13), CIFAR-10 0.03 (0.09), Imagenette
0.02 (0.07), MNIST and digits 0; with 30 % drawn by chance 0.26 (0.19), 0.16 (0.14), 0.19 (0.13), 0.13 (0.10)."""
NOISE_AGREEMENT_OF_FEW = 0.68
"""Share of confident predictions that agree with the label from which the numbers above suffice: prediction is strong,
and what contradicts it is wrong."""
NOISE_AGREEMENT, NOISE_PICTURES = 0.33, 1500
"""Where prediction is weaker: the agreement and the pictures needed for what follows. 400 healthy pictures of `shapes`
look like 2048 noisy ones of CIFAR-10."""
NOISE_IN_PLAIN, NOISE_IN_VARIED = (0.345, 1.04), (0.38, 1.2)
"""Strangeness of labels that were not predicted (0.5: drawn by chance), and by which factor the share of unlikely ones
is above what NOISE_LOW allows, both exceeded; for pictures as they are, and for augmented ones. Three draws of
2048 each, as they are: shapes 0.26 to 0.29 and 0.7, CIFAR-10 0.18 to 0.22 and 0.3; with 30 % noise 0.40 to 0.43 and
1.5, 0.365 to 0.38 and 1.07 to 1.26. Augmented: healthy shapes reach 0.33 and 1.0."""
NOISE_IN_BOTH = (1.03, 0.3, 2.5, 0.13)
"""The factor and the strangeness above, and by how much validation labels are predicted better, in standard errors and
as a share, all four exceeded. Cropped and mirrored, three draws each, healthy: CIFAR-10 0.6, 0.23, below 2 and 0.09;
Imagenette 0.5, 0.26, below 0; with 30 % noise: 1.06 to 1.16, 0.33 to 0.36, 6 and 0.28; 1.1 to 1.4, 0.38 to 0.41, 3 and
0.17. With strong augmentation too, healthy: 0.75, 0.25, 3, 0.17."""
SPLIT_Z, SPLIT_SHARE = 4.5, 0.08
"""By how much validation labels are predicted better than training labels, from pictures treated alike: in standard
errors, and as a share. Healthy parts: within 2; 30 % noise in training: 4 (shapes), 6 (CIFAR-10), 15 (MNIST)."""
EXPLAINS = 0.7
"""Of what training's own labels are predicted by: classes counted otherwise, and nothing else, agree again as well. The
best renaming of labels that are drawn by chance reaches 0.2 (digits) to 0.55 (shapes)."""
UNLIKE_SHARE = 0.4
"""Of training's lead over chance that validation's labels have, from training's pictures. Healthy parts: 0.95 to 1.05;
labels shuffled: 0 to 0.1; pictures with sides exchanged, viewed in the wrong order or as negatives: 0 to 0.3."""
FEW_PER_CLASS = 20
"""Training pictures of a class below which nothing general can be learnt from scratch, if the next says so too."""
FEW_AGREEMENT = 0.6
"""Held-out labels predicted right from so few pictures: above, the task is easy enough for few."""
HARDLY_ANY, HARDLY_ANY_AGREEMENT = 6, 0.95
"""Likewise below this many of a class: a network learns less from them than fixed features do."""
LABELS_READ, LABELS_SECONDS = 128, 1.0
"""Pictures that are read twice to compare their labels, and the longest time for it."""
KNOWN_RANK = 0.1
"""Share of all the others that may be liker to a picture that was read again than itself."""
LEAST_KNOWN_AGAIN, KNOWN_AGAIN = 16, 0.5
"""Of those, pictures that must be known again, and the share. Where each number gives any picture a tenth is, by
chance; cropped and mirrored ones 0.71 (CIFAR-10, crops of 8 % and more) to 1.0 (Imagenette, shifted); with colours
varied too 0.25 to 0.48, and then nothing is said."""
LABELS_CHANGED = 0.25
"""Share of those whose label changes. Sound: none. Drawn anew: half (two classes) and more; a tenth may be noise on
purpose."""
