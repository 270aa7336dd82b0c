import pytest

from pytorchjob_operator.coordinator.limits import Bucket, Limits


@pytest.mark.parametrize(
    ("times", "taken"),
    [
        pytest.param([0.0] * 4, [True, True, True, False], id="a burst, and no more"),
        pytest.param([0.0] * 3 + [0.5], [True] * 4, id="what time gives back"),
        pytest.param([100.0] * 4, [True, True, True, False], id="never more than a burst"),
    ],
)
def test_messages_are_counted_against_the_rate(times: list[float], taken: list[bool]) -> None:
    bucket = Bucket(rate=2.0, burst=3.0, now=0.0)
    assert [bucket.take(now) for now in times] == taken


def test_a_job_has_two_connections_for_each_pod_and_some() -> None:
    assert Limits().links(3) == 22
