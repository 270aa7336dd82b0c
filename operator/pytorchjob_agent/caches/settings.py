"""Which variables lead the libraries to the pod's caches, and the key that keeps foreign caches apart. Pure."""

import json
from collections.abc import Mapping
from hashlib import sha256

INDUCTOR, TRITON, HEADERS, CUDA, HUB = "inductor", "triton", "headers", "cuda", "hub"
FOLDERS = (INDUCTOR, TRITON, HEADERS, CUDA, HUB)
"""In the order in which they are fetched: compiled code first, large models last."""
VARIABLES = {
    INDUCTOR: "TORCHINDUCTOR_CACHE_DIR",
    TRITON: "TRITON_CACHE_DIR",
    CUDA: "CUDA_CACHE_PATH",
    HUB: "HF_HUB_CACHE",
}
HUB_CHOICES = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE", "XDG_CACHE_HOME")
"""Each of them names the place of Hugging Face's files."""
_DIGITS = 16


def key(facts: Mapping[str, str]) -> str:
    """Return the name of the folder for caches that fit these versions, this processor, these devices and this image.

    Compiled code runs on equal machines only: torch compiles for the processor at hand, whatever it is.
    """
    return sha256(json.dumps(dict(sorted(facts.items()))).encode()).hexdigest()[:_DIGITS]


def variables(folder: str, env: Mapping[str, str], *, has_hub: bool) -> dict[str, str]:
    """Return the variables that lead to the caches below `folder`; those that the user has set stay.

    `has_hub`: the image has Hugging Face's files at their default place, where the script must find them.
    """
    taken = {name for name, variable in VARIABLES.items() if env.get(variable)}
    if has_hub or any(env.get(name) for name in HUB_CHOICES):
        taken.add(HUB)
    return {VARIABLES[name]: f"{folder}/{name}" for name in VARIABLES if name not in taken}
