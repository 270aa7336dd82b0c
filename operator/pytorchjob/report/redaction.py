"""Removes secrets from objects and texts before a person attaches them to an issue. Pure.

    redaction = Redaction()
    redaction.learn(source)          # for every source, before the first of them is cleaned
    cleaned = redaction.clean(source)

Three ways lead to a secret: the name of a variable, field or option; the shape of a known token; and the value of
such a variable, which is then removed wherever it occurs: as it is, quoted for a URL, in base64, and cut off at the
beginning or the end of a text.
"""

import base64
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import quote

from pytorchjob.report.secrets import (
    ASSIGNMENT,
    ASSIGNMENT_HINTS,
    SHAPES,
    Shape,
    is_plain,
    is_secret_in_text,
    is_secret_name,
)

KNOWN, VARIABLE, ASSIGNED, ANNOTATION = "known value", "variable", "assignment", "annotation"
ENCODED = "encoded text"
_SHORTEST = 4
"""Shorter values are removed where they are assigned only: they would occur by chance everywhere."""
_WHOLE = 8
"""Shorter values are removed as whole words only."""
_EDGE = 6
_LONG = 60
"""A text of this length, or one that ends with dots, may begin or end within a secret: `_EDGE` letters of it count."""
_LONGEST_ANNOTATION = 1000
_COPIES = ("last-applied", "kapp.k14s.io/original", "rio.cattle.io/applied")
"""Annotations that hold an older version of the whole object."""
_DROPPED = "managedFields"
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
_LIST = re.compile(r"[,;&)}\]]")
_ENCODED = re.compile(r"(?<![\w+/-])[A-Za-z0-9+/_-]{40,}={0,2}")


def marker(kind: str) -> str:
    """Return what stands in place of a secret."""
    return f"[redacted: {kind}]"


def count_markers(texts: Iterable[str]) -> dict[str, int]:
    """Return how often each kind of secret has been removed from these texts."""
    return dict(sorted(Counter(kind for text in texts for kind in _MARKER.findall(text)).items()))


_MARKED = "[redacted: "
_MARKER = re.compile(r"\[redacted: ([A-Za-z ]{3,40})\]")


class Redaction:
    """The secrets that are known so far."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        """Secrets, and the kind of each."""
        self._kinds: dict[str, str] = {}
        """The same, in all their spellings."""
        self._pattern: re.Pattern[str] | None = None

    def learn(self, value: Any) -> None:
        """Remember the secrets of an object or of a text."""
        if isinstance(value, str):
            self._learn_text(value)
        elif isinstance(value, Mapping):
            for key, name in _named(value):
                self._remember(value[key], name)
            for each in value.values():
                self.learn(each)
        elif _is_list(value):
            for place, option in _after_options(value):
                self._remember(value[place], option)
            for each in value:
                self._learn_command(each) if isinstance(each, str) else self.learn(each)

    def clean(self, value: Any) -> Any:
        """Return the object or the text without secrets; what is no secret stays as it is."""
        if isinstance(value, str):
            return self._clean_text(value)
        if isinstance(value, Mapping):
            secret = dict(_named(value))
            return {
                self._clean_text(str(key)): marker(VARIABLE) if key in secret else self._clean_field(key, each)
                for key, each in value.items()
                if key != _DROPPED
            }
        if _is_list(value):
            places = dict(_after_options(value))
            return [marker(ASSIGNED) if at in places else self.clean(each) for at, each in enumerate(value)]
        return value

    def _clean_field(self, key: Any, value: Any) -> Any:
        if key == "annotations" and isinstance(value, Mapping):
            return {
                self._clean_text(str(name)): self._clean_annotation(str(name), text) for name, text in value.items()
            }
        return self.clean(value)

    def _clean_annotation(self, name: str, text: Any) -> Any:
        is_copy = any(part in name for part in _COPIES)
        if is_copy or is_secret_name(name.rpartition("/")[2]) or len(str(text)) > _LONGEST_ANNOTATION:
            return text if _is_marked(str(text)) else marker(ANNOTATION)
        parsed = _parsed(text)
        return self.clean(text) if parsed is None else json.dumps(self.clean(parsed))

    def _learn_text(self, text: str) -> None:
        small = text.casefold()
        for shape in _possible(small):
            if shape.learned:
                for found in shape.pattern.finditer(text):
                    self._remember(found[0].removeprefix(_kept(found)), kind=shape.kind)
        for value in _assigned(text, small):
            if len(value) >= _WHOLE and re.search(r"\d", value) and re.search(r"[A-Za-z]", value):
                self._remember(value)
        parsed = _parsed(text)
        if parsed is not None:
            self.learn(parsed)

    def _learn_command(self, text: str) -> None:
        """What a command line assigns is a secret, also if it is an ordinary word."""
        self._learn_text(text)
        for value in _assigned(text, text.casefold()):
            self._remember(value)

    def _remember(self, value: str, name: str = "", kind: str = KNOWN) -> None:
        if len(value.strip()) >= _SHORTEST and not is_plain(value, name) and not _is_marked(value):
            self._known.setdefault(value, kind)
            self._pattern = None

    def _clean_text(self, text: str) -> str:
        text = self._clean_edges(self._clean_known(text))
        small = text.casefold()
        for shape in _possible(small):
            text = shape.replace(text, lambda found, kind=shape.kind: _kept(found) + marker(kind))  # type: ignore[misc]
        text = _ENCODED.sub(_clean_encoded, text)
        if not any(hint in small for hint in ASSIGNMENT_HINTS):
            return text
        return "\n".join(self._clean_assignments(line) for line in text.split("\n"))

    def _clean_known(self, text: str) -> str:
        if not self._known or not text:
            return text
        if self._pattern is None:
            self._kinds = {text: kind for value, kind in self._known.items() for text in _spellings(value)}
            self._pattern = _pattern_of(self._kinds)
        return self._pattern.sub(lambda found: marker(self._kinds[found[0]]), text)

    def _clean_edges(self, text: str) -> str:
        """Remove what is left of a secret within which the text begins or ends."""
        end = len(text.rstrip().removesuffix("...").removesuffix("…"))
        is_cut, is_long = end < len(text.rstrip()), len(text) >= _LONG
        for known, kind in self._known.items() if is_cut or is_long else ():
            if is_long and (length := _overlap(known, text)):
                return self._clean_edges(marker(kind) + text[length:])
            if length := _overlap(known[::-1], text[:end][::-1]):
                return text[: end - length] + marker(kind) + text[end:]
        return text

    def _clean_assignments(self, line: str) -> str:
        small = line.casefold()
        if not any(hint in small for hint in ASSIGNMENT_HINTS):
            return line
        parts, position = [], 0
        for found in _assignments(line, small):
            parts += [line[position : found.start("value")], marker(ASSIGNED)]
            position = found.end()
        return "".join([*parts, line[position:]])


def _clean_encoded(found: re.Match[str]) -> str:
    """Return a word, or a marker if it is a text with a secret, in base64: a kubeconfig, a file of variables."""
    inner = _decoded(found[0])
    if inner is None:
        return found[0]
    cleaned = Redaction().clean(_parsed(inner) or inner)
    is_secret = json.dumps(cleaned) != json.dumps(_parsed(inner) or inner)
    return marker(ENCODED) if is_secret or "-data:" in inner else found[0]


def _decoded(word: str) -> str | None:
    """Return the text that a word is in base64; None if it is none."""
    body = word.rstrip("=")
    try:
        text = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_" if re.search("[-_]", body) else None)
        found = text.decode()
    except ValueError:
        return None
    return found if all(letter.isprintable() or letter.isspace() for letter in found) else None


def _named(value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the fields that hold a secret, and its name: `{name: TOKEN, value: ...}`, or `{token: ...}`."""
    name, text = value.get("name"), value.get("value")
    if isinstance(name, str) and isinstance(text, str) and is_secret_name(name) and _is_new(text, name):
        yield "value", name
    for key, each in value.items():
        if isinstance(each, str) and is_secret_name(str(key)) and _is_new(each, str(key)):
            yield key, str(key)


def _after_options(values: Sequence[Any]) -> Iterator[tuple[int, str]]:
    """Yield the places of the secrets that follow an option in a command line: `--token`, `...`."""
    for place, (option, value) in enumerate(pairwise(values), 1):
        if isinstance(option, str) and isinstance(value, str) and _OPTION.fullmatch(option):
            name = option.lstrip("-")
            if is_secret_in_text(name, "", option=True) and _is_new(value, name) and not value.startswith("-"):
                yield place, name


def _assigned(text: str, small: str) -> Iterator[str]:
    """Yield the values that a text assigns to secrets: all of each, and what comes before the next of a list."""
    for found in _assignments(text, small):
        value = _unquoted(found["value"])
        yield value
        yield _unquoted(_LIST.split(value, maxsplit=1)[0])


def _assignments(text: str, small: str) -> Iterator[re.Match[str]]:
    """Yield the assignments of secrets in a text."""
    if not any(hint in small for hint in ASSIGNMENT_HINTS):
        return
    position = 0
    while found := ASSIGNMENT.search(text, position):
        value, option = _unquoted(found["value"]), found["option"] is not None
        separator = (found["separator"] or "")[-1:]
        is_option = option and not value.startswith("-")
        is_secret = (separator or is_option) and is_secret_in_text(found["name"], separator, option)
        if is_secret and _is_new(value, found["name"]):
            yield found
            position = found.end()
        else:
            position = found.end("name")


def _is_new(value: str, name: str) -> bool:
    return not is_plain(value, name) and not _is_marked(value)


def _is_marked(value: str) -> bool:
    return value.startswith(_MARKED)


def _unquoted(value: str) -> str:
    return value.strip("\\\"'")


def _possible(small: str) -> Iterator[Shape]:
    return (shape for shape in SHAPES if any(hint in small for hint in shape.hints))


def _kept(found: re.Match[str]) -> str:
    return str(found.groupdict().get("keep") or "")


def _parsed(text: Any) -> Any:
    """Return what a text of JSON holds; None for other texts."""
    if not isinstance(text, str) or not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _overlap(known: str, text: str) -> int:
    """Return how many letters at the beginning of the text are the end of this secret, but not all of it."""
    start = known.find(text[:_EDGE], 1)
    while start > 0:
        if text.startswith(known[start:]):
            return len(known) - start
        start = known.find(text[:_EDGE], start + 1)
    return 0


def _pattern_of(spelled: Iterable[str]) -> re.Pattern[str]:
    """Return what finds each of these texts, the longest first."""
    return re.compile("|".join(map(_literal, sorted(spelled, key=len, reverse=True))))


def _literal(text: str) -> str:
    whole = len(text) >= _WHOLE
    return re.escape(text) if whole else rf"(?<![A-Za-z0-9]){re.escape(text)}(?![A-Za-z0-9])"


def _spellings(secret: str) -> Iterator[str]:
    """Yield a secret as variables, URLs, JSON, Python and base64 spell it, and each line of it."""
    lines = [line.strip() for line in secret.splitlines() if len(line.strip()) >= _WHOLE]
    for text in {secret, secret.strip(), *(lines if len(lines) > 1 else ())}:
        yield text
        yield json.dumps(text)[1:-1]
        yield repr(text)[1:-1]
        yield quote(text)
        yield quote(text, safe="")
        if len(text) >= _WHOLE:
            for encoded in (base64.b64encode(text.encode()), base64.urlsafe_b64encode(text.encode())):
                yield encoded.decode().rstrip("=")
