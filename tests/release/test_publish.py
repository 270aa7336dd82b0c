"""`make publish`: the release of a tag, its text and its files."""

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from pytorchjob_agent import __version__
from tests.release.support import Checkout

DIGEST = "sha256:" + "1" * 64
VIEW = 'if [ "$2" = view ]; then exit {status}; fi'


@pytest.fixture
def ready(with_docker: Checkout) -> Checkout:
    """A checkout in which everything was pushed and built."""
    checkout = with_docker
    assert checkout.run("push", REGISTRY="r.test/team").status == 0
    chart = f"out/release/pytorchjob-operator-{__version__}.tgz"
    wheel = f"out/release/python/pytorchjob-{__version__}-py3-none-any.whl"
    for path in (chart, wheel):
        (checkout.path / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout.path / path).write_text(path)
    record = checkout.path / "out/release/images.json"
    described = {"archive": chart, "reference": f"r.test/team/charts/pytorchjob-operator@{DIGEST}"}
    record.write_text(json.dumps({**json.loads(record.read_text()), "chart": described}))
    assert checkout.run("version", __version__ if undated(checkout) else "").status == 0
    return checkout


def undated(checkout: Checkout) -> bool:
    return f"## [{__version__}]" not in checkout.text("CHANGELOG.md")


def files(call: str) -> list[str]:
    return sorted(Path(word).name for word in call.split() if word.startswith("out/release/") and "notes" not in word)


def test_a_new_release_has_text_and_files(ready: Checkout) -> None:
    ready.stub("gh", VIEW.format(status=1))
    done = ready.run("publish")
    assert done.status == 0, done.error
    (create,) = ready.calls("gh release create")
    words = (
        f"gh release create v{__version__} --verify-tag --title {__version__} --notes-file out/release/notes.md out/"
    )
    assert create.startswith(words)
    names = files(create)
    assert {"images.json", "examples.tar.gz", "SHA256SUMS", f"pytorchjob-operator-{__version__}.tgz"} <= {*names}
    assert len([name for name in names if name.endswith(".spdx.json")]) == 6
    notes = ready.text("out/release/notes.md")
    assert notes.startswith("### Added\n")
    assert notes.rstrip().endswith(f"- `r.test/team/charts/pytorchjob-operator@{DIGEST}`")
    sums = dict(line.split("  ")[::-1] for line in ready.text("out/release/SHA256SUMS").splitlines())
    content = (ready.path / "out/release/images.json").read_bytes()
    assert sums["images.json"] == hashlib.sha256(content).hexdigest()
    assert {*sums} == {*names} - {"SHA256SUMS"}
    with tarfile.open(ready.path / "out/release/examples.tar.gz") as archive:
        assert "examples/digits/pytorchjob.yaml" in archive.getnames()


def test_the_files_of_a_release_that_is_there_are_renewed(ready: Checkout) -> None:
    ready.stub("gh", VIEW.format(status=0))
    assert ready.run("publish").status == 0
    assert [call.split()[2] for call in ready.calls("gh release")] == ["view", "edit", "upload"]
    assert "--clobber" in ready.calls("gh release upload")[0]


def without_chart(checkout: Checkout) -> None:
    record = checkout.path / "out/release/images.json"
    known: dict[str, Any] = json.loads(record.read_text())
    del known["chart"]
    record.write_text(json.dumps(known))


def without_package(checkout: Checkout) -> None:
    for path in (checkout.path / "out/release/python").iterdir():
        path.unlink()


def without_images(checkout: Checkout) -> None:
    (checkout.path / "out/release/images.json").unlink()


LEFT_OUT = [
    pytest.param(without_images, "run `make push REGISTRY=...` first", id="no images"),
    pytest.param(without_chart, "run `make release-chart`", id="no chart"),
    pytest.param(without_package, "run `make package`", id="no package"),
]


@pytest.mark.parametrize(("leave_out", "remedy"), LEFT_OUT)
def test_a_step_that_was_left_out_is_named(ready: Checkout, leave_out: Any, remedy: str) -> None:
    ready.stub("gh")
    leave_out(ready)
    done = ready.run("publish")
    assert (done.status, remedy in done.error) == (1, True), done.error
    assert ready.calls("gh") == []
