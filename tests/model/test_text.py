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
        pytest.param("spec: [\n", r"f:2:1: not valid YAML: the file ends inside a bracket: close it", id="a bracket"),
        pytest.param("a: [1,\n  2\n", r"f:1:4: .*: this bracket is never closed: \] is missing", id="a list is open"),
        pytest.param("a: {b: 1\n", r"f:1:4: .*: this bracket is never closed: } is missing", id="a map is open"),
        pytest.param("a: [1 2: 3 [\n", r"f:1:12: .*: a comma or \] is missing before this", id="no comma"),
        pytest.param("a: 'b\n", r"f:1:4: not valid YAML: this quotation mark is never closed", id="a quotation mark"),
        pytest.param("a: 1\nspec\n", r"f:2:1: not valid YAML: this key has no colon after it", id="half a key"),
        pytest.param("a: 1\nspec\nb: 2", r"f:2:1: not valid YAML: this key has no colon", id="half a key between"),
        pytest.param("a: 1\n  b: 2\n", r"f:2:4: not valid YAML: a colon cannot stand here", id="wrong indentation"),
        pytest.param("a: echo b: c\n", r"f:1:10: .*: a colon cannot stand here.*quote the value", id="two colons"),
        pytest.param("a:\n    b: 1\n  c: 2\n", r"f:3:3: .*: this line is indented as no line above", id="out of step"),
        pytest.param("a:\n- 1\n 2: 3\n", r"f:3:3: .*: a colon cannot stand here", id="a key in a list"),
        pytest.param("a: - b\n", r"f:1:4: .*: a list cannot begin here", id="a list behind its key"),
        pytest.param("a: @b\n", r"f:1:4: .*: a value cannot begin with @: put it in quotes", id="a bare @"),
        pytest.param('a: "\\d"\n', r"f:1:6: .*: this backslash means nothing", id="an escape that is not known"),
        pytest.param("{a: 1} b\n", r"f:1:8: .*: this does not belong to the text above", id="words behind JSON"),
        pytest.param("a:\n\t- b\n", r"f:2:1: not valid YAML: a tab cannot indent a line: use spaces", id="a tab"),
        pytest.param("a: 1\n\tb: 2\n", r"f:2:1: not valid YAML: a tab cannot indent a line", id="a tab before a key"),
        pytest.param("a: 1\nb: 3\na: 2\n", r"f:3:1: .*: key 'a' is given twice, first on line 1", id="a key twice"),
        pytest.param("a: *b\n", r"f:1:4: not valid YAML: \*b is used, but no &b comes before it", id="an alias"),
        pytest.param(
            "a: !!python/object:os.system x", r"f:1:4: .*: the tag python/object:os\.system is not", id="a foreign tag"
        ),
        pytest.param("? [a]\n: b\n", r"f:1:3: not valid YAML", id="a list as a key"),
        pytest.param(BOMB, r"must have at most 200000 values", id="aliases that explode"),
        pytest.param("a: &a [*a]", r"must have at most 200000 values", id="an alias of itself"),
        pytest.param("[" * 5000, r"f: not valid YAML: it is nested too deeply", id="brackets without end"),
        pytest.param("x" * (MAX_CHARACTERS + 1), r"must be at most 4194304 characters", id="a file without end"),
        pytest.param("b: 1\na: \x00", r"f:2:4: .*: the character U\+0000 is not allowed", id="a control character"),
    ],
)
def test_what_is_not_yaml_is_said_with_its_place(text: str, words: str) -> None:
    with pytest.raises(InvalidJob, match=words):
        documents(text, "f")
