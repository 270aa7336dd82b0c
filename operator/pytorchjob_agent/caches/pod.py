"""Leads the libraries of this pod's workers to the pod's caches, before anything is started."""

import getpass
import os
import re
import tempfile
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytorchjob_agent.caches import machine, settings
from pytorchjob_agent.caches.directory import CacheFolder
from pytorchjob_agent.contract.cache_rules import CacheRules
from pytorchjob_agent.system.console import say

_HUB = ".cache/huggingface/hub"
_UNUSUAL = re.compile(r'[\\/:*?"<>|]')
"""What torch replaces in the name of a user."""


@dataclass(frozen=True, slots=True)
class PodCaches:
    """The caches of this pod."""

    key: str
    folder: CacheFolder


def open_caches(env: Mapping[str, str]) -> PodCaches | None:
    """Return the caches; None without the operator's variable, or if the directory cannot be used, which is printed.

    Raises ContractError.
    """
    rules = CacheRules.from_env(env)
    if rules is None:
        return None
    key = settings.key({**machine.facts(), "image": rules.image})
    try:
        return PodCaches(key, CacheFolder(Path(rules.directory) / key))
    except OSError as error:
        say(f"warning: no caches are kept in {rules.directory}: {error}")
        return None


def prepare(env: MutableMapping[str, str]) -> None:
    """Set the variables of the libraries in `env`, for the workers; those that the user has set stay.

    Raises ContractError.
    """
    found = open_caches(env)
    if found is not None:
        env.update(settings.variables(str(found.folder.root), env, has_hub=_has_hub(env)))
        link_headers(Path(tempfile.gettempdir()), found.folder)


def link_headers(temporary: Path, folder: CacheFolder) -> None:
    """Lead torch to the cache for its precompiled headers, which it keeps at a fixed place of the temporary directory.

    No variable changes this place. Headers that are there already stay.
    """
    try:
        user = getpass.getuser()
    except (KeyError, ImportError, OSError):  # a user id without a name
        user = f"uid_{os.getuid()}"
    place = temporary / f"torchinductor_{_UNUSUAL.sub('_', user)}" / "precompiled_headers"
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_symlink() and Path(os.readlink(place)).is_relative_to(folder.root.parent):
            place.unlink()
        place.symlink_to(folder.root / settings.HEADERS)


def _has_hub(env: Mapping[str, str]) -> bool:
    """Return whether the image has models or data of Hugging Face at their default place."""
    return os.path.isdir(Path(env.get("HOME") or os.path.expanduser("~")) / _HUB)
