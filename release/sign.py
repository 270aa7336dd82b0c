"""Signatures by cosign, with the key of SIGN_KEY: a file, or any other key that cosign knows."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from release.common import StepError, have, run


@dataclass(frozen=True)
class Signer:
    """Signs what was pushed; without a key it does nothing."""

    key: str = ""
    options: tuple[str, ...] = ()
    """More words for cosign, from COSIGN_ARGS: for example `--signing-config FILE` where no public log may be used."""

    def sign(self, reference: str) -> bool:
        """Sign an image or a chart by its digest; return whether it was signed."""
        if self.key:
            run("cosign", "sign", "--yes", "--key", self.key, *self.options, reference)
        return bool(self.key)

    def attest(self, reference: str, software: Path) -> None:
        """Attach a signed list of software to an image."""
        if self.key:
            what = ("--type", "spdxjson", "--predicate", str(software))
            run("cosign", "attest", "--yes", "--key", self.key, *what, *self.options, reference)


def signer(env: Mapping[str, str]) -> Signer:
    """Return the signer of this environment; `StepError` at once if there is a key and no program to use it."""
    key = env.get("SIGN_KEY", "")
    if key and not have("cosign"):
        raise StepError(
            "SIGN_KEY is set, but cosign is missing", "install cosign, or unset SIGN_KEY to push without a signature"
        )
    if key and "://" not in key and not Path(key).is_file():
        raise StepError(
            f"the key {key} is not there", "make one with `cosign generate-key-pair`, or name yours in SIGN_KEY"
        )
    return Signer(key, tuple(shlex.split(env.get("COSIGN_ARGS", ""))))
