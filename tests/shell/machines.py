"""Three machines on one: namespaces of the kernel, each with a network, an address and a host name of its own."""

import subprocess
from pathlib import Path

_OWN = ("unshare", "--map-root-user", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
"""What a command makes in there ends with it: no network, mount or process stays."""
_TRIED = "mount -t tmpfs none /run && ip link add bridge type bridge"
_SCRIPT = Path(__file__).with_name("machines.sh")


def possible() -> bool:
    """Whether the kernel of this machine lets this user do so."""
    try:
        return subprocess.run([*_OWN, "bash", "-c", _TRIED], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def on_each(first: str) -> tuple[str, ...]:
    """What runs the words behind it on three machines at once: machine-0, machine-1, machine-2.

    The first has another name too. It fails if one of them fails, after all have ended.
    """
    return (*_OWN, "bash", str(_SCRIPT), first)
