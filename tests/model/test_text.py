import pytest

from pytorchjob_operator.errors import InvalidJob
from pytorchjob_operator.model.text import MAX_CHARACTERS, documents

BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(9)
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("a: 1\n---\n---\nb: 2\n", [{"a": 1}, {"b": 2}], id="empty documents do not count"),
        pytest.param("day: 2026-01-02", [{"day": "2026-01-02"}], id="a date stays what the user wrote"),
        pytest.param("a: &x {b: 1}\nc: {<<: *x, d: 2}", [{"a": {"b": 1}, "c": {"b": 1, "d": 2}}], id="merge keys work"),
        pytest.param("1: a\ntrue: b", [{"1": "a", "true": "b"}], id="keys are strings"),
    ],
)
def test_yaml_is_read_as_kubectl_reads_it(text: str, found: list[object]) -> None:
    assert documents(text, "f") == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("spec: [\n", r"f:2:1: not valid YAML", id="a bracket is open"),
        pytest.param(
            "a: 1\n  b: 2\n", r"f:2:4: not valid YAML: mapping values are not allowed", id="wrong indentation"
        ),
        pytest.param("a:\n\t- b\n", r"f:2:1: not valid YAML", id="a tab"),
        pytest.param("a: 1\na: 2\n", r"f:2:1: not valid YAML: key 'a' is given twice", id="a key twice"),
        pytest.param("a: *b\n", r"f:1:4: not valid YAML: found undefined alias", id="an alias of nothing"),
        pytest.param("a: !!python/object:os.system x", r"could not determine a constructor", id="a foreign tag"),
        pytest.param("? [a]\n: b\n", r"f:1:3: not valid YAML", id="a list as a key"),
        pytest.param(BOMB, r"must have at most 200000 values", id="aliases that explode"),
        pytest.param("a: &a [*a]", r"must have at most 200000 values", id="an alias of itself"),
        pytest.param("[" * 5000, r"f: not valid YAML", id="brackets without end"),
        pytest.param("x" * (MAX_CHARACTERS + 1), r"must be at most 4194304 characters", id="a file without end"),
        pytest.param("a: \x00", r"f: not valid YAML", id="a control character"),
    ],
)
def test_what_is_not_yaml_is_said_with_its_place(text: str, words: str) -> None:
    with pytest.raises(InvalidJob, match=words):
        documents(text, "f")
