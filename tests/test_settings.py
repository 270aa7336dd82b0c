"""Settings from the environment: every bad value names its variable."""

import pytest

from pytorchjob_operator.errors import OperatorError
from pytorchjob_operator.settings import Settings


def test_nothing_set_gives_the_defaults() -> None:
    assert Settings.from_env({}) == Settings()


@pytest.mark.parametrize(
    ("environ", "field", "value"),
    [
        pytest.param({"PYTORCHJOB_NAMESPACES": "a, b,"}, "namespaces", ("a", "b"), id="namespaces are a list"),
        pytest.param({"PYTORCHJOB_LEADER_ELECT": "False"}, "leader_elect", False, id="a switch in any case"),
        pytest.param({"PYTORCHJOB_HTTP_PORT": "9090"}, "http_port", 9090, id="a number"),
        pytest.param({"PYTORCHJOB_STUCK_POD_SECONDS": "0"}, "stuck_pod_seconds", 0, id="nought where it means never"),
        pytest.param({"PYTORCHJOB_LOG_FORMAT": "json"}, "log_format", "json", id="one of several words"),
        pytest.param({"PYTORCHJOB_CLUSTER_DOMAIN": "corp"}, "cluster_domain", "corp", id="a text"),
        pytest.param({"PYTORCHJOB_GANG_SCHEDULER": "volcano"}, "gang_scheduler", "volcano", id="a gang scheduler"),
        pytest.param({"PYTORCHJOB_HTTP_PORT": ""}, "http_port", 8080, id="an empty value is ignored"),
        pytest.param(
            {"PYTORCHJOB_OPERATOR_COORDINATOR_PORT": "7000"}, "coordinator_port", 7000, id="a port for agents"
        ),
        pytest.param({"PYTORCHJOB_OPERATOR_COORDINATOR_TLS": "false"}, "coordinator_tls", False, id="no TLS"),
        pytest.param({"PYTORCHJOB_OPERATOR_COORDINATOR_SECRET": "s"}, "coordinator_secret", "s", id="a Secret"),
        pytest.param({"PYTORCHJOB_COORDINATOR": "c:1"}, "coordinator", False, id="a variable of pods is ignored"),
        pytest.param({"PYTORCHJOB_SOMETHING": "1"}, "http_port", 8080, id="other variables are not ours"),
    ],
)
def test_a_value_is_read(environ: dict[str, str], field: str, value: object) -> None:
    assert getattr(Settings.from_env(environ), field) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("STUCK_POD_SECONDS", 86_400, id="a day"),
        pytest.param("MAX_IN_FLIGHT", 70_000, id="more writes than there are ports"),
        pytest.param("WORKERS", 999_999_999, id="the largest number"),
        pytest.param("HTTP_PORT", 65_535, id="the last port"),
    ],
)
def test_only_a_port_is_bounded_as_a_port(name: str, value: int) -> None:
    assert getattr(Settings.from_env({f"PYTORCHJOB_{name}": str(value)}), name.lower()) == value


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        pytest.param("PYTORCHJOB_HTTP_PORT", "http", "a number from 1 to 65535", id="a port that is no number"),
        pytest.param("PYTORCHJOB_HTTP_PORT", "-1", "a number from 1 to 65535", id="a port below 1"),
        pytest.param("PYTORCHJOB_HTTP_PORT", "70000", "a number from 1 to 65535", id="a port beyond the last"),
        pytest.param("PYTORCHJOB_WORKERS", "0", "a number from 1", id="no workers"),
        pytest.param("PYTORCHJOB_STUCK_POD_SECONDS", "-1", "a number from 0 to 999999999", id="a negative time"),
        pytest.param("PYTORCHJOB_WORKERS", "9" * 5000, "a number from 1", id="more digits than int() reads"),
        pytest.param("PYTORCHJOB_MAX_IN_FLIGHT", "٣", "a number from 1", id="digits of another script"),
        pytest.param("PYTORCHJOB_LEADER_ELECT", "yes", "true, false", id="a switch that is neither"),
        pytest.param("PYTORCHJOB_NODE_CONDITIONS", "Bad", "not Type=True", id="a condition without status"),
        pytest.param("PYTORCHJOB_LOG_LEVEL", "LOUD", "DEBUG, INFO, WARNING, ERROR", id="an unknown level"),
        pytest.param("PYTORCHJOB_LOG_FORMAT", "xml", "text, json", id="an unknown format"),
    ],
)
def test_a_bad_value_names_its_variable_and_what_would_be_right(name: str, value: str, right: str) -> None:
    with pytest.raises(OperatorError, match=right) as refused:
        Settings.from_env({name: value})
    assert str(refused.value).startswith(f"{name}: {value!r}")


ADDRESS = "PYTORCHJOB_OPERATOR_COORDINATOR_ADDRESS"


@pytest.mark.parametrize("address", ["coordinator.space.svc.cluster.local:29600", "10.0.0.1:1", "[fd00::1]:29600"])
def test_the_coordinator_has_an_address(address: str) -> None:
    settings = Settings.from_env({"PYTORCHJOB_OPERATOR_COORDINATOR": "true", ADDRESS: address})
    assert (settings.coordinator, settings.coordinator_address) == (True, address)


@pytest.mark.parametrize(
    "address",
    [
        pytest.param("", id="none"),
        pytest.param("coordinator", id="without a port"),
        pytest.param("coordinator:", id="with an empty port"),
        pytest.param("coordinator:0", id="port 0"),
        pytest.param("coordinator:65536", id="a port beyond the last"),
        pytest.param(":29600", id="without a host"),
        pytest.param("https://coordinator:29600", id="a URL"),
        pytest.param("fd00::1:29600", id="an IPv6 address without brackets"),
        pytest.param("c.$(PYTORCHJOB_LEASE_NAMESPACE).svc:29600", id="with a variable that was not there"),
        pytest.param("a" * 300 + ":29600", id="a host longer than any"),
    ],
)
def test_a_coordinator_that_no_agent_could_reach_is_refused(address: str) -> None:
    with pytest.raises(OperatorError, match=f"{ADDRESS}: .* is not host:port"):
        Settings.from_env({"PYTORCHJOB_OPERATOR_COORDINATOR": "true", ADDRESS: address})


def test_without_a_coordinator_its_address_does_not_matter() -> None:
    assert not Settings.from_env({ADDRESS: "nowhere"}).coordinator
