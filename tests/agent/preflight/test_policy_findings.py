"""What a finding contains: what is wrong, and the remedy."""

from dataclasses import replace

from pytorchjob_agent.preflight.facts import ContainerLimits, Facts, Torch
from pytorchjob_agent.preflight.policy import CheckLevel, PreflightFinding, run_checks

FACTS = Facts(machine=ContainerLimits(shm=1), torch=Torch(problem="gone"), python="3.11.7", clock="noon")


def found(check: str, **env: str) -> PreflightFinding:
    return next(finding for finding in run_checks(replace(FACTS, env=env)) if finding.check == check)


def test_a_wrong_variable_is_found_with_its_remedy() -> None:
    assert found("contract", PYTORCHJOB_PREFLIGHT="on") == PreflightFinding(
        "contract",
        CheckLevel.FAIL,
        "PYTORCHJOB_PREFLIGHT: 'on' is not a level: expected warn, fail or off",
        "correct the variable, or remove it: see `PYTORCHJOB_PREFLIGHT` in docs/doctor.md",
    )


def test_a_problem_has_a_remedy_and_what_is_well_has_none() -> None:
    assert "emptyDir" in found("shm").remedy
    well = found("nofile")
    assert (well.level, well.remedy) == (CheckLevel.OK, "")
    assert well.found


def test_a_sentence_without_a_remedy_does_not_promise_one() -> None:
    assert PreflightFinding("shm", CheckLevel.OK, "64 GiB").sentence() == "shm: 64 GiB"
