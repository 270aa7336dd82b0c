"""Runs in a worker before its script: acts on modules once the script has imported them.

A finder at the front of sys.meta_path asks the finders behind it, as Python would. So each import has the result that
it has without this finder. The module imports nothing else of the agent: the worker's Python may not find the package.
"""

import sys
from _thread import get_ident

TYPE_CHECKING = False  # not typing's, which takes longer to import than this file
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from types import ModuleType
    from typing import Any

    Act = Callable[[ModuleType], None]


def after_import(names: "Collection[str]", act: "Act") -> None:
    """Call `act` with each of these modules: now, if it is imported already, and after each import from now on.

    An error of `act` is printed, and never reaches the script.
    """
    for name in names:
        module = sys.modules.get(name)
        if module is not None:
            _try(act, name, module)
    sys.meta_path.insert(0, _Finder(names, act))


def _try(act: "Act", name: str, module: "ModuleType") -> None:
    try:
        act(module)
    except Exception as error:  # the script must train in any case
        print(f"pytorchjob-agent: {name} stays as it is: {error}", file=sys.stderr)


class _Finder:
    """Finds the named modules where the finders behind it find them, and adds the call to their loaders."""

    def __init__(self, names: "Collection[str]", act: "Act") -> None:
        self._names, self._act = frozenset(names), act
        self._under_way: set[tuple[int, str]] = set()
        """By thread, what is being found: a finder behind this one may ask all finders in its turn."""

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """Return what Python finds without this finder."""
        call = (get_ident(), name)
        if name not in self._names or call in self._under_way:
            return None
        self._under_way.add(call)
        try:
            spec = self._ask_others(name, path, target)
        finally:
            self._under_way.discard(call)
        if hasattr(getattr(spec, "loader", None), "exec_module"):
            spec.loader = _Loader(spec, self._act)
        return spec

    def _ask_others(self, name: str, path: "Any", target: "Any") -> "Any":
        """Return what the finders behind this one find; None: Python has to ask them itself."""
        finders = [*sys.meta_path]
        for finder in finders[finders.index(self) + 1 :] if self in finders else ():
            if not hasattr(finder, "find_spec"):
                return None  # Python before 3.12 has another way to ask this finder
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
        return None


class _Loader:
    """Stands for a module's loader until the module runs. That loader may serve more modules, as for a zip file."""

    def __init__(self, spec: "Any", act: "Act") -> None:
        self._spec, self._loader, self._act = spec, spec.loader, act

    def __getattr__(self, name: str) -> "Any":
        """Offer all that the module's loader offers."""
        return getattr(object.__getattribute__(self, "_loader"), name)

    def exec_module(self, module: "ModuleType") -> None:
        """Run the module with its own loader, and act."""
        if self._spec.loader is self:
            self._spec.loader = self._loader
        if getattr(module, "__loader__", None) is self:
            module.__loader__ = self._loader
        self._loader.exec_module(module)
        _try(self._act, self._spec.name, module)
