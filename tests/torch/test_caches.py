"""The places of torch's caches that the agent relies on."""

import tempfile
from pathlib import Path

import pytest

from pytorchjob_agent.caches import pod
from pytorchjob_agent.caches.directory import CacheFolder

pytestmark = pytest.mark.torch


def test_torch_keeps_precompiled_headers_where_the_agent_leads_it(tmp_path: Path) -> None:
    from torch._inductor import codecache

    place = getattr(codecache, "_HEADER_DIR", None)
    if place is None:  # torch 2.4 precompiles no headers
        assert not hasattr(codecache, "_precompile_header")
        return
    pod.link_headers(tmp_path, CacheFolder(tmp_path / "caches" / "key"))
    inside = Path(place).relative_to(tempfile.gettempdir())
    assert (tmp_path / inside).resolve() == tmp_path / "caches" / "key" / "headers"


def test_a_build_of_torch_that_is_cut_leaves_its_folder() -> None:
    from torch._inductor import cpp_builder

    assert cpp_builder._BUILD_TEMP_DIR == "CxxBuild"
