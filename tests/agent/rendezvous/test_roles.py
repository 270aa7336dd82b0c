"""Where a member's workers stand among those of its role."""

from dataclasses import replace

import pytest

from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.rendezvous import roles
from pytorchjob_agent.rendezvous.roles import MemberRole, RolePlace
from pytorchjob_agent.rendezvous.signed_store import SignedStore

from .test_agreement import Store

PLACE = Assigned(RoundId(3, 7), 0, 3, 0, 7, "10.0.0.1", 1000, 0, secret="5ec2e7")
TRAINERS_AND_A_READER = [MemberRole("trainer", 2), MemberRole("reader", 1), MemberRole("trainer", 4)]


@pytest.mark.parametrize(
    ("rank", "expected"),
    [
        pytest.param(0, RolePlace(0, 6), id="the first of its role"),
        pytest.param(1, RolePlace(0, 1), id="the only one of its role"),
        pytest.param(2, RolePlace(2, 6), id="behind the first of its role"),
    ],
)
def test_workers_are_counted_within_their_role(rank: int, expected: RolePlace) -> None:
    assert roles.place(TRAINERS_AND_A_READER, rank) == expected


def test_the_roles_are_known_once_all_members_have_reported_theirs() -> None:
    store = Store()
    views = [SignedStore(store, replace(PLACE, rank=rank)) for rank in range(3)]
    for view, member in zip(views, TRAINERS_AND_A_READER, strict=True):
        assert roles.read(views[0]) is None
        roles.write(view, member)
    assert roles.read(views[0]) == TRAINERS_AND_A_READER


@pytest.mark.parametrize("value", ["", "many trainer", "0 trainer", "99999 trainer", "9" * 5000])
def test_a_role_that_no_member_writes_counts_as_missing(value: str) -> None:
    view = SignedStore(Store(), replace(PLACE, size=1))
    view.write("role/0", value)
    assert roles.read(view) is None
