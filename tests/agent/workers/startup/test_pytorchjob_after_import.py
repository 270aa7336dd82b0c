"""Acting on a module after its import: every way in which Python may find the module stays as it is."""

import importlib
import inspect
import sys
import zipfile
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec, spec_from_file_location, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pytorchjob_agent.workers.startup.pytorchjob_after_import import after_import

NAME, OTHER = "acted_upon", "left_alone"


@pytest.fixture(autouse=True)
def imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave nothing of the modules, and no finder."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in (NAME, OTHER):
        sys.modules.pop(name, None)


@pytest.fixture
def acted() -> list[str]:
    """The values of the modules that were acted on, while the import of NAME is awaited."""
    found: list[str] = []
    after_import([NAME], lambda module: found.append(module.VALUE))
    return found


def write(folder: Path, value: str = "found") -> str:
    folder.mkdir(exist_ok=True)
    for name in (NAME, OTHER):
        (folder / f"{name}.py").write_text(f"VALUE = {value!r}\ndef function(): return 1\n")
    return str(folder / f"{NAME}.py")


def in_a_folder(folder: Path) -> None:
    write(folder)
    sys.path.insert(0, str(folder))


def in_a_zip(folder: Path) -> None:
    write(folder)
    with zipfile.ZipFile(folder / "modules.zip", "w") as file:
        for name in (NAME, OTHER):
            file.write(folder / f"{name}.py", f"{name}.py")
    sys.path.insert(0, str(folder / "modules.zip"))


class Editable:
    """What pip appends for an editable install."""

    def __init__(self, file: str) -> None:
        self._file = file

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return spec_from_file_location(name, self._file) if name == NAME else None


def of_an_editable_install(folder: Path) -> None:
    sys.meta_path.append(Editable(write(folder)))


def of_a_finder_that_comes_first(folder: Path) -> None:
    write(folder / "later", "hidden")
    sys.path.insert(0, str(folder / "later"))
    sys.meta_path.insert(1, Editable(write(folder / "first")))


class OwnLoader:
    """A finder that is the loader of all its modules, and cannot be changed."""

    __slots__ = ()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return spec_from_loader(name, self) if name in (NAME, OTHER) else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["VALUE"] = "found"


def of_a_loader_of_many(folder: Path) -> None:
    sys.meta_path.insert(1, OwnLoader())


class Asking:
    """A finder that asks all of them: how hooks find what they change. wrapt has such a finder."""

    def __init__(self) -> None:
        self._under_way = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if self._under_way or name != NAME:
            return None
        self._under_way = True
        try:
            return find_spec(name)
        finally:
            self._under_way = False


def of_a_hook_behind(folder: Path) -> None:
    in_a_folder(folder)
    sys.meta_path.insert(1, Asking())


def of_a_hook_before(folder: Path) -> None:
    in_a_folder(folder)
    sys.meta_path.insert(0, Asking())


class AskingOthers:
    """A finder that asks all others, with nothing against finders of its kind."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        asked = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        return next((spec for spec in asked if spec is not None), None)


def of_a_finder_that_asks_the_others_behind(folder: Path) -> None:
    in_a_folder(folder)
    sys.meta_path.insert(1, AskingOthers())


def of_a_finder_that_asks_the_others_before(folder: Path) -> None:
    in_a_folder(folder)
    sys.meta_path.insert(0, AskingOthers())


def after_a_failure(folder: Path) -> None:
    in_a_folder(folder)
    good = (folder / f"{NAME}.py").read_text()
    (folder / f"{NAME}.py").write_text("raise OSError('not now')  # longer than the module that works, much longer\n")
    with pytest.raises(OSError, match="not now"):
        importlib.import_module(NAME)
    (folder / f"{NAME}.py").write_text(good)


def after_a_search(folder: Path) -> None:
    in_a_folder(folder)
    assert find_spec(NAME) is not None


WAYS: list[Callable[[Path], None]] = [
    in_a_folder,
    in_a_zip,
    of_an_editable_install,
    of_a_finder_that_comes_first,
    of_a_loader_of_many,
    of_a_hook_behind,
    of_a_hook_before,
    of_a_finder_that_asks_the_others_behind,
    of_a_finder_that_asks_the_others_before,
    after_a_failure,
    after_a_search,
]


@pytest.mark.parametrize("way", [pytest.param(way, id=way.__name__.replace("_", " ")) for way in WAYS])
def test_a_module_is_imported_as_ever_and_acted_on_once(
    way: Callable[[Path], None], tmp_path: Path, acted: list[str]
) -> None:
    way(tmp_path)
    assert importlib.import_module(NAME).VALUE == "found"
    assert acted == ["found"]


def test_a_module_that_is_imported_already_is_acted_on_at_once(tmp_path: Path) -> None:
    in_a_folder(tmp_path)
    module, found = importlib.import_module(NAME), list[ModuleType]()
    after_import([NAME], found.append)
    assert found == [module]


def test_a_module_that_is_loaded_again_is_acted_on_again(tmp_path: Path, acted: list[str]) -> None:
    in_a_folder(tmp_path)
    importlib.reload(importlib.import_module(NAME))
    assert acted == ["found", "found"]


@pytest.mark.parametrize("way", [in_a_folder, in_a_zip, of_a_loader_of_many], ids=lambda way: way.__name__)
def test_other_modules_of_a_loader_are_left_alone(
    way: Callable[[Path], None], tmp_path: Path, acted: list[str]
) -> None:
    way(tmp_path)
    for name in (NAME, OTHER):
        importlib.import_module(name)
    assert acted == ["found"]


def test_a_module_keeps_its_loader_and_its_source(tmp_path: Path, acted: list[str]) -> None:
    in_a_folder(tmp_path)
    module = importlib.import_module(NAME)
    assert module.__spec__ is not None
    assert type(module.__spec__.loader) is type(module.__loader__) is SourceFileLoader
    assert inspect.getsource(module.function) == "def function(): return 1\n"


def test_what_is_only_searched_offers_its_source(tmp_path: Path, acted: list[str]) -> None:
    in_a_folder(tmp_path)
    spec: Any = find_spec(NAME)
    assert spec.loader.get_source(NAME).startswith("VALUE")
    assert spec.loader.is_package(NAME) is False


def test_a_failure_is_printed_and_never_reaches_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(module: ModuleType) -> None:
        raise ValueError("no such function")

    in_a_folder(tmp_path)
    after_import([NAME], fail)
    importlib.import_module(NAME)
    after_import([NAME], fail)
    assert capsys.readouterr().err == 2 * f"pytorchjob-agent: {NAME} stays as it is: no such function\n"


def test_an_import_that_the_script_forbids_stays_forbidden(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, NAME, None)  # type: ignore[arg-type]
    after_import([NAME], lambda module: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(NAME)
    assert capsys.readouterr().err == ""


def test_a_module_that_no_finder_has_is_missing_as_ever(acted: list[str]) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(NAME)
    assert acted == []


class OldLoader:
    """A loader from before Python 3.4, such as the one for zip files of Python 3.9."""

    def load_module(self, name: str) -> ModuleType:
        module = sys.modules[name] = ModuleType(name)
        vars(module)["VALUE"] = "of an old loader"
        return module


class WithOldLoader:
    """A finder with such a loader."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, OldLoader()) if name == NAME else None  # type: ignore[arg-type]


class OldFinder:
    """A finder from before Python 3.4; Python 3.12 no longer asks it."""

    def find_module(self, name: str, path: Any = None) -> OldLoader | None:
        return OldLoader() if name == NAME else None


@pytest.mark.filterwarnings("ignore::ImportWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("finder", [WithOldLoader(), OldFinder()], ids=["a loader", "a finder"])
def test_what_only_older_versions_of_python_know_works_as_ever(tmp_path: Path, finder: Any) -> None:
    in_a_folder(tmp_path)
    sys.meta_path.insert(0, finder)
    expected = importlib.import_module(NAME).VALUE
    del sys.modules[NAME]
    after_import([NAME], lambda module: None)
    found = importlib.import_module(NAME).VALUE
    assert found == expected


def test_a_script_may_replace_all_finders(tmp_path: Path, acted: list[str]) -> None:
    """A finder that keeps the former ones and asks them: the script imports, whether or not the module is acted on."""

    class All:
        def __init__(self, finders: list[Any]) -> None:
            self._finders = finders

        def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
            asked = (finder.find_spec(name, path, target) for finder in self._finders)
            return next((spec for spec in asked if spec is not None), None)

    in_a_folder(tmp_path)
    sys.meta_path = [All(sys.meta_path)]
    assert importlib.import_module(NAME).VALUE == "found"


def test_each_finder_is_asked_once(tmp_path: Path, acted: list[str]) -> None:
    """A finder before or behind ours is asked as often as without ours."""
    asked = list[str]()

    class Counting(PathFinder):
        @classmethod
        def find_spec(cls, name: str, path: Any = None, target: Any = None) -> None:
            asked.append(name)

    in_a_folder(tmp_path)
    sys.meta_path[:0] = [Counting]
    sys.meta_path.insert(2, Counting)
    importlib.import_module(NAME)
    assert asked == [NAME, NAME]
