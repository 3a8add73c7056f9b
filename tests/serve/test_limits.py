"""Budgets give back what they took, metrics are what Prometheus reads, and settings are checked."""

from __future__ import annotations

import math
import re

import pytest

from vitscope.core.errors import ConfigError
from vitscope.serve.config import ServeConfig
from vitscope.serve.limits import Budget, Share
from vitscope.serve.metrics import Counter, Histogram, Metrics


def refusal_of(budget: Share) -> object:
    from vitscope.serve.refusal import Refusal

    with pytest.raises(Refusal) as refused:
        budget.take(1)
    return (refused.value.status, refused.value.headers())


def test_a_budget_is_never_exceeded_and_all_of_it_comes_back() -> None:
    budget = Budget(5, "full", lambda: 7)
    first, second = Share(budget), Share(budget)
    first.take(3)
    second.take(2)
    assert refusal_of(second) == (503, {"retry-after": "7"})
    assert budget.taken == 5
    first.give_back()
    first.give_back()
    second.take(3)
    second.give_back()
    assert budget.taken == 0


def test_metrics_are_prometheus_text() -> None:
    metrics = Metrics()
    metrics.requests.add('/a"b\\c\n', "200")
    metrics.seconds.see(0.02, "/predict")
    metrics.seconds.see(99, "/predict")
    metrics.gauge("vitscope_x", "An x.", lambda: 3)
    lines = metrics.text().splitlines()
    assert 'vitscope_requests_total{path="/a\\"b\\\\c\\n",status="200"} 1' in lines
    assert 'vitscope_request_seconds_bucket{path="/predict",le="0.01"} 0' in lines
    assert 'vitscope_request_seconds_bucket{path="/predict",le="0.025"} 1' in lines
    assert 'vitscope_request_seconds_bucket{path="/predict",le="+Inf"} 2' in lines
    assert 'vitscope_request_seconds_count{path="/predict"} 2' in lines
    assert "vitscope_x 3" in lines
    sample = re.compile(r'[a-z_]+(\{([a-z_]+="([^"\\]|\\.)*",?)+\})? [-+0-9.e]+|# (HELP|TYPE) .+')
    assert [line for line in lines if not sample.fullmatch(line)] == []


def test_counts_keep_all_their_digits() -> None:
    metrics = Metrics()
    metrics.bytes.add(count=12_345_678_901)
    metrics.model_seconds.add("/predict", count=123456.78125)
    metrics.gauge("vitscope_y", "A y.", lambda: 1_234_567)
    lines = metrics.text().splitlines()
    assert "vitscope_upload_bytes_total 12345678901" in lines
    assert 'vitscope_model_seconds_total{path="/predict"} 123456.78125' in lines
    assert "vitscope_y 1234567" in lines


def test_a_bound_counts_what_is_equal_to_it() -> None:
    told = Histogram("h", "about", (1, 2))
    told.see(1)
    assert 'h_bucket{le="1"} 1' in told.lines()
    count = Counter("c", "about")
    assert count.lines()[-1] == "c 0"


@pytest.mark.parametrize(
    "settings",
    [
        {"port": 65536},
        {"port": -1},
        {"max_batch": 0},
        {"queue": 0},
        {"deadline_s": 0.0},
        {"max_delay_ms": -1.0},
        {"deadline_s": math.inf},
        {"max_upload_mb": math.inf},
        {"max_megapixels": math.inf},
        {"max_delay_ms": math.inf},
        {"deadline_s": math.nan},
        {"max_upload_mb": 1e300},
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        ServeConfig(**settings)  # type: ignore[arg-type]
