"""Metric families of Prometheus, for the apps to tell what the store holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.metrics_core import GaugeMetricFamily


def gauge(
    name: str, help: str, label: str, values: Mapping[str, float], known: Iterable[Any] | None = None
) -> GaugeMetricFamily:
    """A gauge with one label; of what is `known` and has no value, the value is 0."""
    family = GaugeMetricFamily(name, help, labels=[label])
    for value in values if known is None else known:
        family.add_metric([str(value)], values.get(value, 0))
    return family
