"""The names of the metrics, which dashboards and alerts rely on."""

import pytest
from prometheus_client import generate_latest

from pytorchjob_operator.app.metrics import JobCount, Metrics
from pytorchjob_operator.names import LossCause


def text_of(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def test_requests_are_counted_by_verb_resource_and_code_and_watches_are_not_timed() -> None:
    metrics = Metrics()
    metrics.on_request("create", "pods", 201, 0.01)
    metrics.on_request("watch", "pods", 0, 300.0)
    text = text_of(metrics)
    assert 'pytorchjob_operator_api_requests_total{code="201",resource="pods",verb="create"} 1.0' in text
    assert 'pytorchjob_operator_api_requests_total{code="0",resource="pods",verb="watch"} 1.0' in text
    assert 'pytorchjob_operator_api_request_duration_seconds_count{resource="pods",verb="create"} 1.0' in text
    assert 'verb="watch"' not in text.split("api_request_duration")[1]


def test_looks_at_jobs_are_counted_by_result() -> None:
    metrics = Metrics()
    metrics.on_reconcile("success", 0.01)
    assert 'pytorchjob_operator_reconcile_total{result="success"} 1.0' in text_of(metrics)
    assert "pytorchjob_operator_reconcile_duration_seconds_count 1.0" in text_of(metrics)


def test_a_gauge_is_read_when_it_is_asked_for() -> None:
    metrics, value = Metrics(), [1.0]
    metrics.gauge("leader", "1 while this process leads.", lambda: value[0])
    metrics.gauges("jobs", "Jobs.", "phase", lambda: {"Running": int(value[0])})
    value[0] = 7.0
    assert "pytorchjob_operator_leader 7.0" in text_of(metrics)
    assert 'pytorchjob_operator_jobs{phase="Running"} 7.0' in text_of(metrics)


@pytest.mark.parametrize("what", ["created", "deleted", "successful", "failed", "restarted"])
def test_v1s_counters_have_v1s_names_and_labels(what: str) -> None:
    metrics = Metrics()
    metrics.on_job("team", JobCount(what))
    labels = '{framework="pytorch",job_namespace="team"}'
    assert f"\ntraining_operator_jobs_{what}_total{labels} 1.0\n" in text_of(metrics)


def test_pods_that_are_made_again_have_a_namespace_and_a_cause() -> None:
    metrics = Metrics()
    metrics.on_pod_restart("team", LossCause.OOM_KILLED)
    labels = '{cause="OOMKilled",job_namespace="team"}'
    assert f"pytorchjob_operator_pod_restarts_total{labels} 1.0" in text_of(metrics)


def test_starts_are_a_histogram() -> None:
    metrics = Metrics()
    metrics.on_start(7.0)
    text = text_of(metrics)
    assert 'pytorchjob_operator_time_to_running_seconds_bucket{le="5.0"} 0.0' in text
    assert 'pytorchjob_operator_time_to_running_seconds_bucket{le="10.0"} 1.0' in text


def test_no_counter_tells_when_it_was_made() -> None:
    metrics = Metrics()
    metrics.on_reconcile("success", 0.01)
    assert "_created " not in text_of(metrics)


def test_two_of_them_do_not_clash() -> None:
    first, second = Metrics(), Metrics()
    first.on_reconcile("success", 1.0)
    assert 'result="success"' not in text_of(second)
