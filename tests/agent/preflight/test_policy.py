"""What a problem means, by the user's variables."""

from dataclasses import replace

import pytest

from pytorchjob_agent.contract.reading import ContractError
from pytorchjob_agent.preflight.facts import ContainerLimits, Facts, Torch
from pytorchjob_agent.preflight.policy import CheckLevel, PreflightFinding, levels, run_checks, versions_level

NO_TORCH = Facts(machine=ContainerLimits(shm=1), torch=Torch(problem="gone"), python="3.11.7", clock="noon")
ALL = "PYTORCHJOB_PREFLIGHT"


def level(env: dict[str, str], check: str) -> str:
    """The level of the check's finding; nothing when it is off."""
    return "".join(finding.level for finding in run_checks(replace(NO_TORCH, env=env)) if finding.check == check)


@pytest.mark.parametrize(
    ("env", "torch", "shm"),
    [
        pytest.param({}, "fail", "warn", id="what cannot work fails, the rest warns"),
        pytest.param({ALL: "warn"}, "warn", "warn", id="everything warns"),
        pytest.param({ALL: "fail"}, "fail", "fail", id="everything fails"),
        pytest.param({ALL: "off"}, "", "", id="nothing is looked at"),
        pytest.param({f"{ALL}_SHM": "fail"}, "fail", "fail", id="one check fails too"),
        pytest.param({f"{ALL}_TORCH": "warn"}, "warn", "warn", id="one check warns only"),
        pytest.param({ALL: "off", f"{ALL}_SHM": "warn"}, "", "warn", id="one check alone"),
        pytest.param({ALL: "fail", f"{ALL}_SHM": "off"}, "fail", "", id="all but one"),
        pytest.param({ALL: "", f"{ALL}_SHM": ""}, "fail", "warn", id="empty is unset"),
    ],
)
def test_the_level_of_a_problem(env: dict[str, str], torch: str, shm: str) -> None:
    assert (level(env, "torch"), level(env, "shm")) == (torch, shm)


def test_what_is_well_is_ok_at_every_level() -> None:
    assert level({ALL: "fail"}, "nofile") == "ok"


@pytest.mark.parametrize(
    ("env", "words"),
    [
        pytest.param({ALL: "on"}, "PYTORCHJOB_PREFLIGHT: 'on' is not a level: expected warn, fail or off", id="level"),
        pytest.param({f"{ALL}_SHM": "no"}, "PYTORCHJOB_PREFLIGHT_SHM: 'no'", id="level of a check"),
        pytest.param({f"{ALL}_VERSIONS": "on"}, "PYTORCHJOB_PREFLIGHT_VERSIONS: 'on'", id="level of the versions"),
        pytest.param({f"{ALL}_SMH": "off"}, "PYTORCHJOB_PREFLIGHT_SMH is not a check: expected one of", id="check"),
    ],
)
def test_a_wrong_variable_is_named(env: dict[str, str], words: str) -> None:
    with pytest.raises(ContractError, match=words):
        levels(env)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        pytest.param({}, "warn", id="they warn"),
        pytest.param({ALL: "fail"}, "fail", id="like every check"),
        pytest.param({ALL: "fail", f"{ALL}_VERSIONS": "off"}, "off", id="their own variable wins"),
    ],
)
def test_what_differing_versions_mean(env: dict[str, str], expected: str) -> None:
    assert versions_level(env) == expected


def test_a_wrong_variable_is_a_failure_of_its_own() -> None:
    (finding,) = run_checks(replace(NO_TORCH, env={ALL: "on"}))
    assert (finding.check, finding.level) == ("contract", CheckLevel.FAIL)


def test_several_problems_of_one_check_are_several_findings() -> None:
    env = {"CUDA_VISIBLE_DEVICES": "0,0,x"}
    assert [finding.level for finding in run_checks(replace(NO_TORCH, env=env)) if finding.check == "devices"] == [
        "warn",
        "warn",
    ]


def test_a_long_text_is_cut() -> None:
    (finding,) = [found for found in run_checks(replace(NO_TORCH, contract="x" * 10000)) if found.check == "contract"]
    assert len(finding.found) == 600


def test_a_sentence_has_the_remedy() -> None:
    assert PreflightFinding("shm", CheckLevel.WARN, "small", "more").sentence() == "shm: small. Fix: more"
