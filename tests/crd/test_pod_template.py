import pytest

from pytorchjob_operator.crd.pod_template import load, short

POD = load()["properties"]["spec"]["properties"]


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        pytest.param("A short sentence.", "A short sentence.", id="a short one stays"),
        pytest.param("two\n  lines", "two lines", id="white space is folded"),
        pytest.param("word " * 40, "word " * 22 + "word...", id="a long one ends at a whole word"),
    ],
)
def test_descriptions_are_cut(text: str, cut: str) -> None:
    assert short(text) == cut
    assert len(cut) <= 120


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        pytest.param("containers", ["name"], id="containers by name"),
        pytest.param("containers.env", ["name"], id="environment by name"),
        pytest.param("containers.ports", ["containerPort", "protocol"], id="ports by number and protocol"),
        pytest.param("volumes", ["name"], id="volumes by name"),
    ],
)
def test_lists_keep_their_keys(path: str, keys: list[str]) -> None:
    first, *rest = path.split(".")
    node = POD[first]
    for part in rest:
        node = node["items"]["properties"][part]
    assert (node["x-kubernetes-list-type"], node["x-kubernetes-list-map-keys"]) == ("map", keys)


def test_containers_that_no_new_pod_may_have_are_not_explained() -> None:
    assert "description" in POD["initContainers"]["items"]["properties"]["image"]
    assert "description" not in POD["ephemeralContainers"]["items"]["properties"]["image"]


def test_a_limit_is_a_quantity() -> None:
    limits = POD["containers"]["items"]["properties"]["resources"]["properties"]["limits"]
    assert limits["additionalProperties"]["x-kubernetes-int-or-string"]


def test_metadata_of_a_template_is_kept() -> None:
    assert {"annotations", "finalizers", "labels", "name", "namespace"} < set(
        load()["properties"]["metadata"]["properties"]
    )
