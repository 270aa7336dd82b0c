"""The build of PyTorch that is installed, and the packages that a machine without GPUs skips."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
LOCKED = (ROOT / "requirements/dev.txt").read_text()
FILE = """# locked
torch==2.0 \\
    --hash=sha256:1 \\
    --hash=sha256:2
    # via x
nvidia-cublas==1.0 ; sys_platform == 'linux' \\
    --hash=sha256:3
numpy==1.0
"""


@pytest.fixture(scope="module")
def packages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install_packages", ROOT / "install/packages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("wanted", "platform", "gpu", "build"),
    [
        pytest.param("auto", "linux", True, "cuda", id="a GPU"),
        pytest.param("auto", "linux", False, "cpu", id="no GPU"),
        pytest.param("auto", "darwin", False, "cuda", id="no Linux: the locked build has no CUDA anyway"),
        pytest.param("cuda", "linux", False, "cuda", id="the user wants it"),
        pytest.param("cpu", "linux", True, "cpu", id="the user does not want it"),
    ],
)
def test_the_build(packages: ModuleType, wanted: str, platform: str, gpu: bool, build: str) -> None:
    assert packages.choose(wanted, platform, gpu) == build


def test_an_unknown_build_is_one_sentence(packages: ModuleType) -> None:
    with pytest.raises(ValueError, match="TORCH=rocm is not known: use auto, cuda or cpu"):
        packages.choose("rocm", "linux", False)


def test_a_gpu_is_a_device_or_its_tool(packages: ModuleType, tmp_path: Path) -> None:
    nothing, tool = (lambda _: None), (lambda name: f"/usr/bin/{name}")
    (tmp_path / "nvidiactl").touch()
    assert not packages.has_gpu(tmp_path, nothing)
    assert packages.has_gpu(tmp_path, tool)
    (tmp_path / "nvidia0").touch()
    assert packages.has_gpu(tmp_path, nothing)
    assert not packages.has_gpu(tmp_path / "none", nothing)


def test_a_package_goes_with_its_hashes(packages: ModuleType) -> None:
    assert packages.without(FILE, lambda name: name != "numpy") == "# locked\nnumpy==1.0\n"
    assert packages.without(FILE, lambda name: False) == FILE


def test_what_is_not_loaded_is_in_the_locked_file_and_torch_stays(packages: ModuleType) -> None:
    lean = packages.without(LOCKED, packages.NOT_LOADED.__contains__)
    for name in packages.NOT_LOADED:
        assert f"\n{name}==" in LOCKED
        assert f"\n{name}==" not in lean
    assert "\ntorch==" in lean
    assert "\nnvidia-cublas==" in lean


@pytest.mark.parametrize(
    ("script", "words"),
    [
        pytest.param("exit 0", "", id="it succeeds"),
        pytest.param(
            "printf 'error: no\\n  cause: dns\\n  cause: no such name\\n' >&2; exit 2", "no such name", id="causes"
        ),
        pytest.param("exit 3", "exit status 3", id="no word"),
    ],
)
def test_a_refusal_is_the_last_cause(packages: ModuleType, script: str, words: str) -> None:
    assert packages.refusal(["sh", "-c", script]) == words


def test_the_sizes_are_of_the_locked_version(packages: ModuleType) -> None:
    """A new version needs new figures, which docs/tutorial and README show before a download."""
    assert packages.locked_version(LOCKED, "torch") == packages.MEASURED
