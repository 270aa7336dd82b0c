"""The keys of a round, as the coordinator draws them."""

from datetime import UTC, datetime

from pytorchjob_agent.saves.round_keys import RoundKeys
from pytorchjob_operator.kube import certificate


def draw(secret: str) -> RoundKeys:
    """Keys with a certificate that no other round has."""
    return RoundKeys(secret, b"".join(certificate.make(datetime.now(UTC))).decode())  # noqa: TID251 - it is verified now


KEYS = draw("secret")
