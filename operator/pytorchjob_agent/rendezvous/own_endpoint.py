"""This process's coordinator endpoint: read once from the environment, which loses the credential then.

So workers do not inherit it, and experiment trackers do not store it. An unmodified torchrun loads this module for our
rendezvous: its workers get a copy of its environment, too.
"""

import os
from pathlib import Path

from pytorchjob_agent.contract.coordinator_endpoint import COORDINATOR, TOKEN_FILE, CoordinatorEndpoint
from pytorchjob_agent.contract.messages import TOKEN_LIMIT

_taken: CoordinatorEndpoint | None = None


def take() -> CoordinatorEndpoint | None:
    """Return the endpoint; None without a coordinator. Raises ContractError.

    Later calls return it too, although the variable of the credential is gone by then.
    """
    global _taken
    if not os.environ.get(COORDINATOR):
        return None
    if _taken is None or TOKEN_FILE in os.environ:
        _taken = CoordinatorEndpoint.from_env(os.environ)
        drop_credential()
    return _taken


def drop_credential() -> None:
    """Remove the credential's variable from the environment, for children of a process that does not need it."""
    os.environ.pop(TOKEN_FILE, None)


def read_credential(endpoint: CoordinatorEndpoint) -> str:
    """Return the pod's credential as it is now; raises OSError, with the variable that names the file."""
    try:
        with Path(endpoint.token_file).open(encoding="ascii", errors="replace") as file:
            return file.read(TOKEN_LIMIT).strip()
    except OSError as error:
        raise OSError(f"{TOKEN_FILE}: {endpoint.token_file} cannot be read: {error.strerror}") from error
