"""Reads what compiled code depends on, without an import of torch and without a start of CUDA in this process."""

import importlib.util
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROCESSOR = re.compile(r"^(vendor_id|cpu family|model|model name|stepping|flags|CPU [a-z]+|Features)\s*: (.*)$", re.M)
_VERSION = re.compile(r"^(__version__|cuda|git_version|hip)\b[^=]*= (.*)$", re.M)
_GPU_MODEL = re.compile(r"^Model:\s*(.*)$", re.M)
_GFX = re.compile(r"^gfx_target_version (\d+)$", re.M)


def facts(root: Path = Path("/")) -> dict[str, str]:
    """Return the versions, the processor, and the models of the GPUs; what cannot be read is empty."""
    return {
        "python": f"{sys.implementation.cache_tag} {platform.machine()} {''.join(platform.libc_ver())}",
        "torch": _package("torch", "version.py"),
        "triton": _package("triton", "__init__.py"),
        "processor": _processor(_read(root / "proc/cpuinfo")),
        "driver": _read(root / "proc/driver/nvidia/version").partition("\n")[0],
        "devices": "; ".join(sorted({*_devices(root)})),
    }


def _package(name: str, file: str) -> str:
    """Return the lines with the versions of an installed package; importing torch takes seconds."""
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(name)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            return "; ".join(
                f"{found[1]}={found[2].strip()}" for found in _VERSION.finditer(_read(Path(folder) / file))
            )
    return ""


def _processor(text: str) -> str:
    """Return the first processor's model and features."""
    found: dict[str, str] = {}
    for match in _PROCESSOR.finditer(text):
        found.setdefault(match[1], match[2].strip())
    return "; ".join(f"{name}: {value}" for name, value in found.items())


def _devices(root: Path) -> Iterator[str]:
    """Yield the models of the GPUs that the drivers of NVIDIA and AMD show."""
    for path in (root / "proc/driver/nvidia/gpus").glob("*/information"):
        yield from _GPU_MODEL.findall(_read(path))
    for path in (root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties"):
        yield from (f"gfx {version}" for version in _GFX.findall(_read(path)) if int(version))


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
