"""Which platforms are built, and what is named as missing."""

import pytest

from release.common import StepError
from release.platforms import BOTH, Builder, Choice, asked, choose, inspected

AMD, ARM = BOTH
FULL = Builder(AMD)
NO_BUILDX = Builder(AMD, buildx=False)
ONE_AT_A_TIME = Builder(AMD, driver="docker", several=False)
NO_EMULATION = Builder(AMD, platforms=frozenset([AMD, "linux/386"]))

CHOSEN = [
    pytest.param((), FULL, Choice(BOTH, True), id="both by default"),
    pytest.param((AMD,), FULL, Choice((AMD,), False), id="this machine's alone needs no buildx"),
    pytest.param(("native",), NO_BUILDX, Choice((AMD,), False), id="native"),
    pytest.param((ARM,), FULL, Choice((ARM,), True), id="another alone"),
    pytest.param((), Builder(AMD, driver="docker"), Choice(BOTH, True), id="a daemon that stores several"),
]


@pytest.mark.parametrize(("wanted", "builder", "choice"), CHOSEN)
def test_chooses(wanted: tuple[str, ...], builder: Builder, choice: Choice) -> None:
    assert choose(wanted, builder) == choice


LACKS = [
    pytest.param(NO_BUILDX, "docker buildx is missing; install Docker's buildx plugin", id="no buildx"),
    pytest.param(ONE_AT_A_TIME, "one platform at a time; run `docker buildx create --use`", id="the default builder"),
    pytest.param(NO_EMULATION, "does not run programs of linux/arm64; let it emulate them", id="no emulation"),
]


@pytest.mark.parametrize(("builder", "words"), LACKS)
def test_without_a_wish_what_is_missing_is_a_note(builder: Builder, words: str) -> None:
    choice = choose((), builder)
    assert (choice.platforms, choice.buildx) == ((AMD,), False)
    assert choice.note.startswith("only linux/amd64 is built: ")
    assert words in choice.note
    assert choice.note.endswith("then run `make push` again")


@pytest.mark.parametrize(("builder", "words"), LACKS)
def test_with_a_wish_it_is_an_error(builder: Builder, words: str) -> None:
    with pytest.raises(StepError) as failed:
        choose(BOTH, builder)
    sentence, _, remedy = words.partition("; ")
    assert str(failed.value).startswith("PLATFORMS=linux/amd64,linux/arm64 cannot be built: ")
    assert sentence in str(failed.value)
    assert failed.value.remedy.startswith(remedy)
    assert failed.value.remedy.endswith("or build for this machine alone with PLATFORMS=native")


@pytest.mark.parametrize(
    ("text", "platforms"),
    [("", ()), ("  ", ()), ("linux/arm64", (ARM,)), ("linux/amd64, linux/arm64", BOTH), ("native native", ("native",))],
)
def test_platforms_are_separated_by_commas_or_spaces(text: str, platforms: tuple[str, ...]) -> None:
    assert asked(text) == platforms


def test_an_unknown_platform_is_named() -> None:
    with pytest.raises(StepError, match="'amd64' is not a platform"):
        asked("amd64")


def test_the_description_of_a_builder_is_understood() -> None:
    described = "Name: x\nDriver:        docker\n\nNodes:\nName: x\nPlatforms: linux/amd64*, linux/arm64, linux/386\n"
    platforms = frozenset([AMD, ARM, "linux/386"])
    assert inspected(AMD, described, several=True) == Builder(AMD, True, "docker", True, platforms)
