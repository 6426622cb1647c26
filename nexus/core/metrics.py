"""Prometheus metric families of the store's content, for the apps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.metrics_core import GaugeMetricFamily


def gauge(
    name: str, help: str, label: str, values: Mapping[str, float], known: Iterable[Any] | None = None
) -> GaugeMetricFamily:
    """Return a gauge with one label; a `known` value of the label that `values` lacks is 0."""
    family = GaugeMetricFamily(name, help, labels=[label])
    for value in values if known is None else known:
        family.add_metric([str(value)], values.get(value, 0))
    return family
