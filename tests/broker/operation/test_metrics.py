"""The text that Prometheus reads."""

from __future__ import annotations

from virta.broker.operation.metrics import Registry, labelled


def test_the_text_form() -> None:
    registry = Registry()
    requests = registry.counter("virta_requests_total", "Requests.")
    registry.gauge("virta_connections", "Open now.", lambda: 7)
    registry.gauge("virta_rows", "Rows.", lambda: labelled({'a"\n\\': 1.5, "b": 2e20}, "topic"))
    seconds = registry.histogram("virta_seconds", "How long.")
    requests.add(verb="append")
    requests.add(2, verb="append")
    requests.add(verb="fetch")
    for value in (0.00005, 0.0001, 0.3, 99):
        seconds.note(value, verb="append")
    text = registry.text()
    for line in (
        "# HELP virta_requests_total Requests.",
        "# TYPE virta_requests_total counter",
        'virta_requests_total{verb="append"} 3',
        'virta_requests_total{verb="fetch"} 1',
        "# TYPE virta_connections gauge",
        "virta_connections 7",
        'virta_rows{topic="a\\"\\n\\\\"} 1.5',
        'virta_rows{topic="b"} 2e+20',
        'virta_seconds_bucket{verb="append",le="0.0001"} 2',
        'virta_seconds_bucket{verb="append",le="0.25"} 2',
        'virta_seconds_bucket{verb="append",le="0.5"} 3',
        'virta_seconds_bucket{verb="append",le="+Inf"} 4',
        'virta_seconds_count{verb="append"} 4',
    ):
        assert line in text.splitlines()
    assert text.endswith("\n") and requests.value(verb="append") == 3


def test_a_counter_that_never_rose_is_zero() -> None:
    registry = Registry()
    registry.counter("x_total", "X.")
    assert "x_total 0\n" in registry.text()
