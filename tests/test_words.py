"""Words that this project once used for itself stay out of its pages and its source: docs/glossary.md has the terms.

A page is clean in its prose, and none of its sentences is too long; a folder of source is clean in its names, comments,
docstrings and messages.
"""

import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import prose

ROOT = Path(__file__).parent.parent
REPORTED = "reported, notified, recorded, sent, message"
PROSE = {
    r"told|tells?|telling|said|says?|saying|untold": REPORTED,
    r"(looks?|looked|looking)(?! like| up)": "snapshot, context, pass; check, read, inspect",
    r"news": "events",
    r"troubles?": "problem, pod condition",
    r"seats?|seated": "expected pod",
    r"epochs?": "term",
    r"orders|ordered": "commands",
    r"gatherings?|gathers?": "rendezvous",
    r"meetings?|meets?": "coordinator endpoint; join the rendezvous",
    r"boards?": "progress file",
    r"strangers?|doors?": "unauthenticated connection, authentication",
    r"unled|nameless|beside_v1": "without a coordinator, anonymous, legacy",
    r"keepers?|crews?": "supervisor, worker group",
    r"pulses?|beats?": "heartbeat",
    r"doubled|heeds?|heeded|forgives?|forgiven": "duplicate, honour, reset",
    r"whoever|whomever|somebody|somebody's|nobody|nobody's|anybody|everybody": "name the component",
    r"(?<!users )(?<!user )(?<!people )(?<!anyone )(?<!person )(?<!administrator )who(m)?": "name the component",
    r"anew": "again, from scratch",
    r"so (many|long)": "after N, within N seconds",
    r"by (its|their|the operator's) word": "as it reports",
    r"(?<!there )(is|are|was|were) (?-i:none)": "is not an X",
}
"""What a reader should not find, as a whole word, and what to write."""
NAMES = {
    "one": "the thing: pod, member, rule, worker",
    **dict.fromkeys(("told", "tell", "tells", "said", "untold"), REPORTED),
    **dict.fromkeys(("look", "looks", "looked"), "snapshot, context, check, read"),
    "news": "events",
    **dict.fromkeys(("trouble", "troubles"), "problem"),
    **dict.fromkeys(("seat", "seats", "seated"), "expected pod"),
    "epoch": "term",
    **dict.fromkeys(("conclude", "concluded"), "finish_job"),
    "orders": "commands",
    "gathering": "rendezvous",
    "meeting": "coordinator endpoint",
    **dict.fromkeys(("board", "boards"), "progress file"),
    **dict.fromkeys(("stranger", "strangers", "door"), "unauthenticated, authentication"),
    **dict.fromkeys(("unled", "nameless"), "without_coordinator, anonymous"),
    **dict.fromkeys(("keeper", "crew"), "supervisor, worker group"),
    **dict.fromkeys(("pulse", "beat", "beats"), "heartbeat"),
    **dict.fromkeys(("doubled", "heed", "forgive"), "duplicate, honour, reset"),
    **dict.fromkeys(("whoever", "somebody", "nobody", "anew"), "name the component"),
}
"""Parts of a name in source, and what to call the thing."""
MEANT = (
    r"`(?:tests|e2e|operator|benchmarks)/[^`]*`",  # a citation: the name is the file's or the test's
    r"\btest_\w+",
    r"\bpytorchjob_operator_rounds_news_total\b",  # names of metrics are promises
    r"(?i)\btrain(?:ing)? epochs?\b|--epochs?|\bepochs? \\?d|EPOCHS",  # a pass over the data
    r'(?i)\bepochs\?|"epoch"|\bepochs? \d',  # the same, as scripts print it and as patterns find it
    r"\}\.board\b",  # the name of a progress file
    r"^\| Fault \| Who \|.*$",  # the heading of a generated table
)
"""What looks like a private word and is not, for every page and source file."""
CLEAN_PAGES = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "SUPPORT.md",
    "benchmarks/README.md",
    "benchmarks/recovery/README.md",
    "docs/README.md",
    "docs/accelerators.md",
    "docs/agent.md",
    "docs/attacks.md",
    "docs/checkpoints.md",
    "docs/cli.md",
    "docs/cluster.md",
    "docs/comparison.md",
    "docs/compatibility.md",
    "docs/decisions/0001-architecture.md",
    "docs/decisions/0002-contract.md",
    "docs/decisions/0003-tiers.md",
    "docs/decisions/0004-coordinator.md",
    "docs/decisions/0005-hangs.md",
    "docs/decisions/0006-house.md",
    "docs/decisions/0007-checklist.md",
    "docs/decisions/0008-safety.md",
    "docs/decisions/0009-people.md",
    "docs/decisions/0010-goodput.md",
    "docs/doctor.md",
    "docs/elastic.md",
    "docs/environment.md",
    "docs/faq.md",
    "docs/glossary.md",
    "docs/goodput.md",
    "docs/installing.md",
    "docs/kueue.md",
    "docs/local.md",
    "docs/logs.md",
    "docs/migrating.md",
    "docs/monitoring.md",
    "docs/progress.md",
    "docs/releasing.md",
    "docs/resource.md",
    "docs/rounds.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/runbooks/*.md")),
    "docs/scheduling.md",
    "docs/sdk.md",
    "docs/security.md",
    "docs/shell-blocks.md",
    "docs/standalone.md",
    "docs/torchrun.md",
    "docs/troubleshooting.md",
    "docs/warm.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("examples/**/README.md")),
    "tests/mutation/README.md",
]
PACKAGES = ROOT / "operator"
SOURCE = [
    str(path.relative_to(ROOT))
    for path in (ROOT / "monitoring", *sorted(PACKAGES.glob("*/*")))
    if path.suffix == ".py" or any(path.rglob("*.py"))
]
_PROSE = {re.compile(rf"\b(?:{words})\b", re.IGNORECASE): instead for words, instead in PROSE.items()}
_MEANT = re.compile("|".join(f"(?:{pattern})" for pattern in MEANT).replace("(?i)", ""), re.MULTILINE | re.IGNORECASE)
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_TEXTS = (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))


def in_prose(text: str) -> Iterator[tuple[int, str, str]]:
    """The private words of a text: the line, the word, what to write."""
    text = prose.blanked(_MEANT, text)
    for pattern, instead in _PROSE.items():
        for found in pattern.finditer(text):
            yield text.count("\n", 0, found.start()) + 1, found[0], instead


def in_source(path: Path) -> Iterator[tuple[int, str, str]]:
    """The private words of a file of Python: in its names, and in its strings and comments."""
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in _TEXTS:
                yield from (
                    (token.start[0] + line - 1, word, instead) for line, word, instead in in_prose(token.string)
                )
            if token.type == tokenize.NAME:
                parts = {part.lower() for part in _PART.findall(token.string)}
                yield from ((token.start[0], token.string, NAMES[part]) for part in sorted(parts & NAMES.keys()))


def listed(name: str, found: Iterator[tuple[int, str, str]]) -> list[str]:
    """One line for each private word, with what to write."""
    return [f"{name}:{line}: {word!r}: use {instead}" for line, word, instead in sorted(found)]


@pytest.mark.parametrize("name", CLEAN_PAGES)
def test_a_page_has_no_private_word(name: str) -> None:
    assert listed(name, in_prose((ROOT / name).read_text())) == []


@pytest.mark.parametrize("name", CLEAN_PAGES)
def test_no_sentence_of_a_page_is_too_long(name: str) -> None:
    assert prose.long_sentences(ROOT / name) == []


@pytest.mark.parametrize("name", SOURCE)
def test_source_has_no_private_word(name: str) -> None:
    chosen = sorted((ROOT / name).rglob("*.py")) if (ROOT / name).is_dir() else [ROOT / name]
    assert [line for path in chosen for line in listed(str(path.relative_to(ROOT)), in_source(path))] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The operator tells nobody.", ["tells", "nobody"]),
        ("A look at the board, anew", ["look", "board", "anew"]),
        ("users who submit jobs", []),
        ("the agent who waits", ["who"]),
        ("`tests/x.py::test_what_a_pod_is_told`, `--epochs 3`", []),
        ("the first epoch of a leader", ["epoch"]),
        ("a dashboard, overlooked", []),
    ],
)
def test_private_words_are_found(text: str, words: list[str]) -> None:
    assert sorted(word for _, word, _ in in_prose(text)) == sorted(words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("for one in ones: pass", ["one"]),
        ("told_once = None", ["told_once"]),
        ("class BoardFile: pass", ["BoardFile"]),
        ("boarding = 1  # a keyboard", []),
        ('"""Tell why."""', ["Tell"]),
    ],
)
def test_private_names_are_found(tmp_path: Path, text: str, words: list[str]) -> None:
    (tmp_path / "x.py").write_text(text)
    assert [word for _, word, _ in in_source(tmp_path / "x.py")] == words


def test_each_term_stands_once_in_the_glossary_with_its_origin() -> None:
    lines = (ROOT / "docs/glossary.md").read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    terms = [term for row in rows if row[0] not in ("term", "---") for term in row[0].split(", ")]
    assert [row for row in rows if len(row) != 3] == []
    assert sorted(term for term in terms if terms.count(term) > 1) == []
    assert len(terms) > 60
