"""`make push` without Docker: what is built, recorded, listed, signed, and what is refused before that."""

import json
from typing import Any

import pytest
import yaml

from pytorchjob_agent import __version__
from tests.release.support import Checkout

REGISTRY = "r.test/team"
PLATFORMS = ["linux/amd64", "linux/arm64"]
IMAGES = ["agent", "examples", "operator"]


def builds(checkout: Checkout) -> list[str]:
    """The calls that build and push an image."""
    return [call for call in checkout.calls("docker buildx build") if " --push " in call]


def pushed(checkout: Checkout, **env: str) -> Any:
    done = checkout.run("push", REGISTRY=REGISTRY, **env)
    assert done.status == 0, done.error
    return json.loads(checkout.text("out/release/images.json"))


def test_each_image_is_recorded_by_digest_with_both_platforms(with_docker: Checkout) -> None:
    record = pushed(with_docker)
    assert (record["version"], record["tag"], record["registry"]) == (__version__, __version__, REGISTRY)
    assert sorted(record["images"]) == IMAGES
    for name, image in record["images"].items():
        assert image["reference"] == f"{REGISTRY}/pytorchjob-{name}@{image['digest']}"
        assert sorted(image["platforms"]) == PLATFORMS
        assert image["digest"] not in image["platforms"].values()


def test_the_digests_are_printed(with_docker: Checkout) -> None:
    done = with_docker.run("push", REGISTRY=REGISTRY, TAG="7")
    record = json.loads(with_docker.text("out/release/images.json"))
    assert all(image["reference"] in done.output for image in record["images"].values())
    assert [":7 " in call for call in builds(with_docker)] == [True] * 3


def test_the_examples_image_is_made_from_the_agents_that_was_just_pushed(with_docker: Checkout) -> None:
    record = pushed(with_docker)
    (call,) = [call for call in builds(with_docker) if "images/examples/" in call]
    assert f"--build-arg AGENT={record['images']['agent']['reference']} " in call


def test_without_buildx_this_machines_platform_is_pushed_and_a_sentence_names_what_is_missing(
    with_docker: Checkout,
) -> None:
    done = with_docker.run("push", REGISTRY=REGISTRY, FAKE_BUILDX="0")
    assert done.status == 0, done.error
    note = "push: only linux/amd64 is built: docker buildx is missing; install Docker's buildx plugin, then"
    assert note in done.output
    assert with_docker.calls("images.sh") == ["images.sh agent operator examples"]
    record = json.loads(with_docker.text("out/release/images.json"))
    assert [image["platforms"] for image in record["images"].values()] == [
        {"linux/amd64": image["digest"]} for image in record["images"].values()
    ]


def test_native_needs_no_buildx_and_no_note(with_docker: Checkout) -> None:
    done = with_docker.run("push", REGISTRY=REGISTRY, FAKE_BUILDX="0", PLATFORMS="native")
    assert (done.status, "only" in done.output) == (0, False), done.error


def test_each_platform_has_a_list_of_software(with_docker: Checkout) -> None:
    record = pushed(with_docker)
    assert record["softwareBy"] == "pytorchjob-release"
    for image in record["images"].values():
        for platform, path in image["software"].items():
            listed = json.loads(with_docker.text(path))
            names = {package["name"]: package for package in listed["packages"]}
            assert listed["spdxVersion"] == "SPDX-2.3"
            assert "removed" not in names
            url = names["bash"]["externalRefs"][0]["referenceLocator"]
            assert url == f"pkg:deb/debian/bash@5.2.15-2%2Bb7?arch={platform.partition('/')[2]}"
            assert names["pytorchjob"]["versionInfo"] == __version__
    operator = json.loads(with_docker.text(record["images"]["operator"]["software"]["linux/arm64"]))
    assert {"kopf", "aiohttp", "cryptography"} <= {package["name"] for package in operator["packages"]}
    agent = json.loads(with_docker.text(record["images"]["agent"]["software"]["linux/amd64"]))
    assert "torch" in {package["name"] for package in agent["packages"]}


def test_the_lists_are_the_same_each_time(with_docker: Checkout) -> None:
    path = pushed(with_docker)["images"]["agent"]["software"]["linux/arm64"]
    before = with_docker.text(path)
    pushed(with_docker)
    assert with_docker.text(path) == before


def test_syft_makes_the_lists_where_it_is_installed(with_docker: Checkout) -> None:
    with_docker.stub(
        "syft", 'if [ "$1" = version ]; then echo \'{"version": "1.2.3"}\'; else echo \'{"by": "syft"}\'; fi'
    )
    record = pushed(with_docker)
    assert record["softwareBy"] == "syft 1.2.3"
    scans = with_docker.calls("syft scan")
    assert len(scans) == 6
    assert all(f"registry:{REGISTRY}/pytorchjob-" in call and "--platform linux/" in call for call in scans)
    assert json.loads(with_docker.text(record["images"]["agent"]["software"]["linux/arm64"])) == {"by": "syft"}


def test_a_key_signs_images_and_lists(with_docker: Checkout) -> None:
    with_docker.stub("cosign")
    (with_docker.path / "cosign.key").write_text("key")
    record = pushed(with_docker, SIGN_KEY="cosign.key", COSIGN_ARGS="--signing-config local.json")
    assert record["signed"] is True
    words = "cosign sign --yes --key cosign.key --signing-config local.json"
    assert sorted(with_docker.calls("cosign sign")) == sorted(
        f"{words} {image['reference']}" for image in record["images"].values()
    )
    attested = with_docker.calls("cosign attest --yes --key cosign.key --type spdxjson --predicate out/release/sbom/")
    assert len(attested) == 6


def test_without_a_key_nothing_is_signed(with_docker: Checkout) -> None:
    with_docker.stub("cosign")
    assert pushed(with_docker)["signed"] is False
    assert with_docker.calls("cosign") == []


def test_values_manifests_and_examples_name_the_images_by_digest(with_docker: Checkout) -> None:
    images = pushed(with_docker)["images"]
    values = yaml.safe_load(with_docker.text("out/release/values.yaml"))
    operator = images["operator"]
    assert values == {"image": {"repository": operator["name"], "tag": __version__, "digest": operator["digest"]}}
    component = yaml.safe_load(with_docker.text("out/release/manifests/image/kustomization.yaml"))
    named = {"name": "pytorchjob/operator", "newName": operator["name"], "digest": operator["digest"]}
    assert component["images"] == [named]
    assert "patches" not in component
    examples = with_docker.path / "out/release/examples"
    texts = [path.read_text() for path in examples.rglob("*.yaml")]
    assert texts
    assert not [text for text in texts if "pytorchjob/examples:dev" in text]
    digits = yaml.safe_load((examples / "digits/pytorchjob.yaml").read_text())
    containers = digits["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    assert containers[0]["image"] == images["examples"]["reference"]


REFUSED = [
    pytest.param({}, 2, "REGISTRY is missing", id="no registry"),
    pytest.param({"REGISTRY": "https://r.test/a"}, 2, "is not a registry", id="a scheme"),
    pytest.param({"REGISTRY": "r.test/a/"}, 2, "is not a registry", id="a slash at the end"),
    pytest.param({"REGISTRY": "r.test/Team"}, 2, "is not a registry", id="upper case"),
    pytest.param({"REGISTRY": REGISTRY, "TAG": "a b"}, 2, "'a b' is not a tag", id="a tag with a space"),
    pytest.param({"REGISTRY": REGISTRY, "PLATFORMS": "windows"}, 2, "'windows' is not a platform", id="a platform"),
    pytest.param(
        {"REGISTRY": REGISTRY, "PLATFORMS": "linux/amd64,linux/arm64", "FAKE_BUILDX": "0"},
        1,
        "PLATFORMS=linux/amd64,linux/arm64 cannot be built: docker buildx is missing",
        id="both platforms without buildx",
    ),
    pytest.param({"REGISTRY": REGISTRY, "SIGN_KEY": "k"}, 1, "cosign is missing", id="a key without cosign"),
]


@pytest.mark.parametrize(("env", "status", "words"), REFUSED)
def test_refuses_before_anything_is_built(with_docker: Checkout, env: dict[str, str], status: int, words: str) -> None:
    done = with_docker.run("push", **env)
    assert (done.status, words in done.sentence) == (status, True), done.error
    assert len(done.error.splitlines()) == 2
    assert done.error.splitlines()[1].startswith("next: ")
    assert with_docker.calls("docker buildx build") + with_docker.calls("docker push") == []


def test_a_key_that_is_not_there_is_named(with_docker: Checkout) -> None:
    with_docker.stub("cosign")
    done = with_docker.run("push", REGISTRY=REGISTRY, SIGN_KEY="nowhere.key")
    assert (done.status, done.sentence) == (1, "the key nowhere.key is not there")
    assert with_docker.calls("docker buildx build") == []


def test_without_docker_it_is_named(checkout: Checkout) -> None:
    done = checkout.run("push", REGISTRY=REGISTRY)
    assert (done.status, done.sentence) == (1, "docker is missing")


@pytest.mark.parametrize(("buildx", "words"), [("0", "its base is not Debian's"), ("1", "/var/lib/dpkg/status")])
def test_a_base_of_another_distribution_needs_syft(with_docker: Checkout, buildx: str, words: str) -> None:
    done = with_docker.run("push", REGISTRY=REGISTRY, FAKE_BASE="other", FAKE_BUILDX=buildx)
    assert (done.status, words in done.sentence, "install syft" in done.error) == (1, True, True), done.error


def test_the_lists_of_both_ways_to_build_are_the_same_but_for_the_digest(with_docker: Checkout) -> None:
    names = []
    for buildx in ("0", "1"):
        path = pushed(with_docker, FAKE_BUILDX=buildx)["images"]["operator"]["software"]["linux/amd64"]
        packages = json.loads(with_docker.text(path))["packages"][1:]
        names.append([(package["name"], package["versionInfo"]) for package in packages])
    assert names[0] == names[1] != []


def test_login_takes_the_password_from_its_environment_and_not_as_an_argument(with_docker: Checkout) -> None:
    done = with_docker.run("login", REGISTRY=REGISTRY, REGISTRY_USER="ann", REGISTRY_PASSWORD="secret")
    assert done.status == 0, done.error
    assert with_docker.calls("docker login") == ["docker login r.test --username ann --password-stdin"]
    assert (with_docker.docker / "password").read_text() == "secret"


@pytest.mark.parametrize("missing", ["REGISTRY", "REGISTRY_USER", "REGISTRY_PASSWORD"])
def test_login_names_what_is_missing(with_docker: Checkout, missing: str) -> None:
    env = {"REGISTRY": REGISTRY, "REGISTRY_USER": "ann", "REGISTRY_PASSWORD": "secret"}
    del env[missing]
    done = with_docker.run("login", **env)
    assert (done.status, done.sentence) == (2, f"{missing} is missing")
