"""A pass over a job computes once what several policies need."""

import sys
from collections import Counter
from dataclasses import replace
from types import FrameType

from pytorchjob_operator.observed import CoordinatorAccess, Options, PodPhase
from pytorchjob_operator.plan import goodput, make_plan, members
from pytorchjob_operator.plan.environment import replica
from tests.factories import make_job, observed, pods


def test_an_idle_pass_computes_roles_and_ledger_once_and_no_environment() -> None:
    once = {members.coordinated_roles.__code__, goodput.build_ledger.__code__, goodput.stage.__code__}
    never = {replica.build_env.__code__}
    calls = Counter[object]()

    def count(frame: FrameType, event: str, _: object) -> None:
        calls[frame.f_code] += event == "call"

    job = make_job(workers=3, elasticPolicy={"minReplicas": 2, "maxReplicas": 4})
    seen = observed(job, *pods(*[PodPhase.RUNNING] * 4))
    sys.setprofile(count)
    try:
        make_plan(replace(seen, options=Options(coordinator=CoordinatorAccess("op:29600"))))
    finally:
        sys.setprofile(None)
    assert {calls[code] for code in once} == {1}
    assert {calls[code] for code in never} == {0}
