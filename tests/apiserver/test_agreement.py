"""The API server and this machine judge alike, whatever a job looks like."""

import pytest
from hypothesis import HealthCheck, given, settings

from pytorchjob_operator.model.check import validate_dict
from tests.apiserver.cluster import ControlPlane
from tests.apiserver.test_crd import JOBS
from tests.model import corpus
from tests.model.mutants import mutants

pytestmark = pytest.mark.apiserver


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(mutants())
def test_both_accept_or_both_refuse(control_plane: ControlPlane, job: corpus.Job) -> None:
    code, message = control_plane.post(JOBS, job)
    assert code in (201, 400, 422), message
    assert (code == 201) == (validate_dict(job) == []), message
