"""Signatures by the real cosign, in a registry on this machine. No public log takes part."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.apiserver.cluster import BIN
from tests.release.support import Checkout
from tests.shell.following import follow, run_by
from tests.shell.register import SIGNED

COSIGN = shutil.which("cosign", path=os.pathsep.join([str(BIN), os.environ["PATH"]]))
PASSWORD = {"COSIGN_PASSWORD": "secret"}
pytestmark = [
    pytest.mark.apiserver,  # the registry is built with Go, as its programs are
    pytest.mark.long,
    pytest.mark.skipif(COSIGN is None, reason="cosign is not built: run `make binaries-cosign`"),
]


def cosign(folder: Path, *arguments: str) -> str:
    command = [str(COSIGN), *arguments]
    env = {**os.environ, **PASSWORD}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True).stdout


def test_the_page_verifies_an_image_by_the_key_that_signed_it(with_docker: Checkout, registry: str) -> None:
    [key] = run_by(SIGNED)
    folder, programs = with_docker.path, [Path(str(COSIGN)).parent]
    with_docker.link("cosign", Path(str(COSIGN)))
    cosign(folder, "generate-key-pair")
    (folder / "signing.json").write_text(cosign(folder, "signing-config", "create"))
    private = {"COSIGN_ARGS": "--signing-config signing.json", **PASSWORD}

    assert with_docker.run("push", REGISTRY=f"{registry}/unsigned").status == 0
    with pytest.raises(AssertionError, match="no signatures found"):
        follow(key, folder, programs)

    done = with_docker.run("push", REGISTRY=f"{registry}/signed", SIGN_KEY="cosign.key", **private)
    assert done.status == 0, done.error
    assert "The signatures were verified against the specified public key" in follow(key, folder, programs)

    for name in ("cosign.key", "cosign.pub"):
        (folder / name).unlink()
    cosign(folder, "generate-key-pair")
    with pytest.raises(AssertionError, match="failed to verify signature"):
        follow(key, folder, programs)
