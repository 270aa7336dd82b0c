"""Is this checkout ready to be released as VERSION? Each thing that is not is one sentence, with the next step."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from release import changelog, version
from release.common import StepError, main, run, show, succeeds

Problem = tuple[str, str]
"""What is wrong, and what to do about it."""


@dataclass(frozen=True)
class Facts:
    """What decides whether a version can be released."""

    asked: str
    source: str
    copies: Mapping[str, list[str]]
    """Every version in each file that repeats it."""
    log: str
    changed: str
    """What `git status` lists."""
    tagged_elsewhere: bool
    """The version's tag exists and names another commit."""


def read(asked: str) -> Facts:
    """Read the facts of this checkout."""
    tag = f"refs/tags/v{asked}"
    known = succeeds("git", "rev-parse", "--verify", "--quiet", tag)
    return Facts(
        asked,
        version.current(),
        {str(place.path): place.read() for place in version.COPIES},
        changelog.FILE.read_text(),
        run("git", "status", "--porcelain"),
        known and run("git", "rev-parse", f"{tag}^{{commit}}") != run("git", "rev-parse", "HEAD"),
    )


def problems(facts: Facts) -> Iterator[Problem]:
    """Yield what keeps the version from being released."""
    begin = f"run `make release-version VERSION={facts.asked}` and commit what it changes"
    if facts.source != facts.asked:
        yield f"this checkout is version {facts.source}, not {facts.asked}", begin
    for path, found in facts.copies.items():
        if not found or {*found} != {facts.source}:
            yield f"{path} has version {', '.join(found) or 'nothing'}, not {facts.source}", "run `make generate`"
    yield from ((mistake, f"correct {changelog.FILE}") for mistake in changelog.mistakes(facts.log))
    known = changelog.sections(facts.log)
    if facts.asked not in known:
        yield f"{changelog.FILE} has no section for {facts.asked}", begin
    elif not known[facts.asked][1]:
        yield f"{changelog.FILE} lists no change of {facts.asked}", "write at least one line that users understand"
    if facts.changed:
        count = len(facts.changed.splitlines())
        yield f"{count} file{'s are' if count > 1 else ' is'} not committed", "commit or remove what `git status` lists"
    if facts.tagged_elsewhere:
        yield f"the tag v{facts.asked} names another commit", "choose the next version: a released tag never moves"


def step(arguments: Sequence[str], env: Mapping[str, str]) -> None:
    """Check the version of the argument, of VERSION, or of this checkout."""
    asked = version.parsed(next(iter(arguments), "") or env.get("VERSION") or version.current())
    found = [*problems(read(asked))]
    for sentence, remedy in found:
        print(f"error: {sentence}\nnext: {remedy}", file=sys.stderr)
    if found:
        raise StepError(
            f"{asked} cannot be released yet: {len(found)} problem{'s' if len(found) > 1 else ''}, see above"
        )
    show(f"{asked} can be released: tag this commit v{asked}")


if __name__ == "__main__":
    main(step)
