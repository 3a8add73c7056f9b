"""What is asked of pictures and labels, in order."""

from __future__ import annotations

from vitscope.doctor.check import Check
from vitscope.doctor.checks.data.amount import amount_of_pictures
from vitscope.doctor.checks.data.balance import class_balance
from vitscope.doctor.checks.data.channels import channel_order
from vitscope.doctor.checks.data.copies import copies
from vitscope.doctor.checks.data.finite import finite_pixels
from vitscope.doctor.checks.data.flat import flat_pictures
from vitscope.doctor.checks.data.label_range import label_range
from vitscope.doctor.checks.data.leaks import leaks
from vitscope.doctor.checks.data.order import order_of_classes
from vitscope.doctor.checks.data.scale import scale_of_pixels
from vitscope.doctor.checks.data.steady import steady_validation
from vitscope.doctor.checks.data.steady_labels import steady_labels
from vitscope.doctor.checks.data.truth import truth_of_labels

CHECKS: tuple[Check, ...] = (
    Check("finite_pixels", "data", finite_pixels),
    Check("label_range", "data", label_range),
    Check("steady_labels", "data", steady_labels),
    Check("flat_pictures", "data", flat_pictures),
    Check("scale_of_pixels", "data", scale_of_pixels),
    Check("copies", "data", copies),
    Check("leaks", "data", leaks),
    Check("order_of_classes", "data", order_of_classes),
    Check("class_balance", "data", class_balance),
    Check("channel_order", "data", channel_order),
    Check("steady_validation", "data", steady_validation),
    Check("amount_of_pictures", "data", amount_of_pictures),
    Check("truth_of_labels", "data", truth_of_labels),
)
