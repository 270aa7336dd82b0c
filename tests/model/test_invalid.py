import pytest

from pytorchjob_operator.errors import InvalidJob
from pytorchjob_operator.model.check import validate_dict
from pytorchjob_operator.model.parse import parse_job
from pytorchjob_operator.observed import Observed
from pytorchjob_operator.plan import make_plan
from tests.factories import NOW
from tests.model import corpus
from tests.model.invalid import AS_V1, BROKEN_PODS, INVALID

LEAST = 300


def test_the_corpus_is_large_and_names_each_job_once() -> None:
    assert len(INVALID) >= LEAST
    assert len({bad.sentence for bad in INVALID}) == len(INVALID)


@pytest.mark.parametrize("bad", INVALID, ids=lambda bad: bad.sentence)
def test_refused_and_the_field_is_named(bad: corpus.Bad) -> None:
    assert bad.field in [problem.field for problem in validate_dict(bad.job)]


@pytest.mark.parametrize("job", AS_V1.values(), ids=AS_V1.keys())
def test_accepted_as_v1_did(job: corpus.Job) -> None:
    assert validate_dict(job) == []


@pytest.mark.parametrize("changes", BROKEN_PODS.values(), ids=BROKEN_PODS.keys())
def test_a_broken_pod_is_the_api_servers_business(changes: corpus.Job) -> None:
    assert validate_dict(corpus.changed(corpus.job(), changes)) == []


@pytest.mark.parametrize("bad", [bad for bad in INVALID if ".template" not in bad.field], ids=lambda bad: bad.sentence)
def test_a_job_that_was_stored_before_this_definition_breaks_no_plan(bad: corpus.Bad) -> None:
    """v1's definition let most of these in: they get a plan, or an error says that they are unreadable.

    Of a pod template it was as strict as ours.
    """
    try:
        job = parse_job(bad.job)
    except InvalidJob as error:
        assert error.problems  # noqa: PT017
        return
    assert make_plan(Observed(job, NOW)).reason
