"""The tokens by which the coordinator authenticates agents: one for each pod of each job, derived from one key. Pure.

The operator writes the token into each pod that it creates. The coordinator derives it again from the job uid and pod
name that the agent sends. No token is stored, and a new operator with the same key accepts the pods of the old one.
"""

import hashlib
import hmac

KEY_BYTES = 32
"""Size of the key; it must be random."""


def token(key: bytes, job_uid: str, pod: str) -> str:
    """Return the token of one pod of one job, in hexadecimal."""
    # An unauthenticated connection may send a name that strict UTF-8 cannot encode; no pod has such a name.
    identity = f"{job_uid}/{pod}".encode("utf-8", "surrogatepass")
    return hmac.new(key, identity, hashlib.sha256).hexdigest()


def matches(key: bytes, job_uid: str, pod: str, given: str) -> bool:
    """Return whether `given` is this pod's token, in constant time."""
    return hmac.compare_digest(token(key, job_uid, pod).encode(), given.encode("utf-8", "surrogatepass"))
