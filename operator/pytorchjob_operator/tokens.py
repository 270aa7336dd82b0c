"""What lets a pod in with the coordinator: a token for each pod of each job, made from one key. Pure.

The operator writes the token into the pod that it makes, the coordinator makes it again from the names that the pod
says: nothing has to be stored, and a new operator with the same key knows the pods of the old one.
"""

import hashlib
import hmac

KEY_BYTES = 32
"""Size of the key; it must be random."""


def token(key: bytes, job_uid: str, pod: str) -> str:
    """Make the token of one pod of one job, in hexadecimal."""
    # What a stranger calls itself may be no text that can be encoded strictly; such a name is no pod's.
    said = f"{job_uid}/{pod}".encode("utf-8", "surrogatepass")
    return hmac.new(key, said, hashlib.sha256).hexdigest()


def matches(key: bytes, job_uid: str, pod: str, given: str) -> bool:
    """Tell whether `given` is this pod's token, in a time that says nothing of how much of it is right."""
    return hmac.compare_digest(token(key, job_uid, pod).encode(), given.encode("utf-8", "surrogatepass"))
