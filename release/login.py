"""Sign in to the host of REGISTRY as REGISTRY_USER, with REGISTRY_PASSWORD; Helm and cosign use the same sign-in."""

from collections.abc import Mapping, Sequence

from release.common import StepError, main, run, show
from release.images import registry


def step(_arguments: Sequence[str], env: Mapping[str, str]) -> None:
    """Sign in; the password is never an argument, because other users of the machine can read those."""
    host = registry(env, "login").name.partition("/")[0]
    for name in ("REGISTRY_USER", "REGISTRY_PASSWORD"):
        if not env.get(name):
            raise StepError(f"{name} is missing", f"set {name}, or sign in by hand: docker login {host}", status=2)
    run("docker", "login", host, "--username", env["REGISTRY_USER"], "--password-stdin", stdin=env["REGISTRY_PASSWORD"])
    show(f"login: signed in to {host}")


if __name__ == "__main__":
    main(step)
