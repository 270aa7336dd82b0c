"""YAML text to plain dicts, as kubectl reads it: duplicate keys are refused, dates stay strings, size is bounded."""

import re
from collections.abc import Hashable
from typing import Any

import yaml

from pytorchjob_operator import yaml_errors
from pytorchjob_operator.errors import InvalidJob, Problem

MAX_CHARACTERS = 4 * 1024 * 1024
MAX_NODES = 200_000
"""Most values after aliases are resolved: a few lines of YAML can otherwise expand to billions."""

TEMPLATE = "is a template of Helm, not YAML: `helm template RELEASE CHART` prints what it becomes"
_PAGE = "is a page for a browser (HTML), not YAML: download the raw file, or log in where it comes from"
_ACTION = re.compile(
    r"\{\{-?\s*(?:\.(?:Release|Values|Chart|Capabilities|Files)\b|(?:if|range|with|include|template|define|toYaml|end)\b)"
)
"""An action of a template; Go's templates elsewhere, as in `docker inspect --format`, have other fields."""
_MARKUP = re.compile(r"\s*<(?:!doctype|html|head|body|\?xml)\b", re.IGNORECASE)
_MERGE = "tag:yaml.org,2002:merge"
_STRING = "tag:yaml.org,2002:str"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class _Loader(yaml.SafeLoader):
    """YAML's safe subset without dates and without silent duplicates."""

    yaml_implicit_resolvers = {  # noqa: RUF012 -- the name and the kind are PyYAML's
        first: [resolver for resolver in found if resolver[0] != _TIMESTAMP]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if key.tag == _MERGE:
                continue
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key must be a word", problem_mark=key.start_mark)
            if key.value in seen:
                twice = f"key {key.value!r} is given twice, first on line {seen[key.value]}: remove one of them"
                raise yaml.MarkedYAMLError(problem=twice, problem_mark=key.start_mark)
            seen[key.value] = key.start_mark.line + 1
            key.tag = _STRING  # an object's keys are strings, as in JSON
        return super().construct_mapping(node, deep)


def is_template(text: str) -> bool:
    """Whether a text is a file of a chart before Helm has filled it in."""
    return _ACTION.search(text) is not None


def documents(text: str, source: str) -> list[Any]:
    """Return every document of a YAML (or JSON) text that is not empty; raises InvalidJob with line and column."""
    if len(text) > MAX_CHARACTERS:
        raise InvalidJob([Problem("", f"{source}: must be at most {MAX_CHARACTERS} characters, got {len(text)}")])
    if _MARKUP.match(text):
        raise InvalidJob([Problem("", f"{source}: {_PAGE}")])
    try:
        found = [document for document in yaml.load_all(text, Loader=_Loader) if document is not None]
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        if is_template(text):
            raise InvalidJob([Problem("", f"{source}: {TEMPLATE}")]) from error
        fault = yaml_errors.explain(error, text)
        raise InvalidJob([Problem("", f"{fault.at(source)}: not valid YAML: {fault.words}")]) from error
    if _too_large(found):
        raise InvalidJob([Problem("", f"{source}: must have at most {MAX_NODES} values; its aliases expand to more")])
    return found


def _too_large(root: Any) -> bool:
    left, rest = MAX_NODES, [root]
    while rest and left:
        left -= 1
        node = rest.pop()
        if isinstance(node, dict):
            rest.extend(node.values())
        elif isinstance(node, list):
            rest.extend(node)
    return bool(rest)
