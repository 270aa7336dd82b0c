"""ROLE_RANK and ROLE_WORLD_SIZE: the workers of the same `--role` count among themselves. Pure.

Every member writes its role to the round's store. Only a member with a role of its own reads the others': a job without
`--role` loses no time, and there all ranks are of one role.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pytorchjob_agent.contract.messages import Assigned
from pytorchjob_agent.rendezvous.signed_store import SignedStore

DEFAULT = "default"
"""torchrun's own, for agents without `--role`."""
WAIT_SECONDS = 3.0
"""How long a member waits for the roles of the others; then all ranks count, as without roles."""
_MAX_WORKERS = 10_000


@dataclass(frozen=True, slots=True)
class RolePlace:
    """The workers of one member among those of its role."""

    first: int
    """ROLE_RANK of its first worker."""
    size: int
    """ROLE_WORLD_SIZE."""


@dataclass(frozen=True, slots=True)
class MemberRole:
    """The role of one member, and the number of its workers."""

    role: str
    count: int


def write(store: SignedStore, member: MemberRole) -> None:
    """Report this member's role to the others."""
    store.write(_key(store.assigned.rank), f"{member.count} {member.role}")


def read(store: SignedStore) -> list[MemberRole] | None:
    """Return the roles of all members by node rank; None until all have reported theirs."""
    ranks = range(store.assigned.size)
    keys = [_key(rank) for rank in ranks]
    if not store.has_all(keys, ranks):
        return None
    found = [_parse(signed.value) for signed in store.read_all(keys, ranks) if signed is not None]
    members = [member for member in found if member is not None]
    return members if len(members) == store.assigned.size else None


def without_roles(assigned: Assigned) -> RolePlace:
    """Return the place among all workers."""
    return RolePlace(assigned.first_rank, assigned.world_size)


def place(members: Sequence[MemberRole], rank: int) -> RolePlace:
    """Return the place of the member with this node rank among the members of its role."""
    same = [(other, member.count) for other, member in enumerate(members) if member.role == members[rank].role]
    return RolePlace(sum(count for other, count in same if other < rank), sum(count for _, count in same))


def _key(rank: int) -> str:
    return f"role/{rank}"


def _parse(value: str) -> MemberRole | None:
    count, _, role = value.partition(" ")
    valid = count.isascii() and count.isdigit() and len(count) < 6 and 0 < int(count) <= _MAX_WORKERS
    return MemberRole(role, int(count)) if valid else None
