"""The caches of one pod: where the libraries find them, what is offered, and what a killed compiler leaves."""

import getpass
import json
import os
import tempfile
from pathlib import Path

import pytest

from pytorchjob_agent.caches import directory, listing, machine, pod, settings, sources
from pytorchjob_agent.caches.directory import REST_NS, CacheFolder, is_whole_library
from pytorchjob_agent.caches.listing import CachedFile
from pytorchjob_agent.caches.sources import Source
from pytorchjob_agent.contract.cache_rules import CACHES, CacheRules
from pytorchjob_agent.contract.reading import ContractError
from pytorchjob_agent.exchange.wire import PeerRefusedError

NOW = 10**18
OWN = Source(0, "a", 1, "key", 0)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary directory of one pod: this machine's stays as it is."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def put(folder: CacheFolder, path: str, content: bytes = b"x", age_ns: int = 10 * REST_NS) -> Path:
    """Write a file of this age."""
    file = folder.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    os.utime(file, ns=(NOW - age_ns, NOW - age_ns))
    return file


@pytest.fixture
def folder(tmp_path: Path) -> CacheFolder:
    return CacheFolder(tmp_path / "caches")


@pytest.fixture
def library() -> bytes:
    """A shared library of this machine, up to the end of its table of sections."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    data = next(Path(line.split()[-1]) for line in maps if line.endswith(".so") or "libc.so" in line).read_bytes()
    _, start, entry, count = directory._HEADER.unpack(data[: directory._HEADER.size])
    return data[: start + entry * count]


def offered(folder: CacheFolder) -> list[str]:
    return sorted(file.path for file in folder.offer(NOW))


ALL = {"TORCHINDUCTOR_CACHE_DIR": "/c/inductor", "TRITON_CACHE_DIR": "/c/triton", "CUDA_CACHE_PATH": "/c/cuda",
       "HF_HUB_CACHE": "/c/hub"}  # fmt: skip
NO_HUB = {name: value for name, value in ALL.items() if name != "HF_HUB_CACHE"}


@pytest.mark.parametrize(
    ("env", "has_hub", "expected"),
    [
        pytest.param({}, False, ALL, id="all"),
        pytest.param({"CUDA_CACHE_PATH": "/own"}, False, {**ALL, "CUDA_CACHE_PATH": None}, id="the user's own stays"),
        pytest.param({"HF_HOME": "/models"}, False, NO_HUB, id="the user says where the models are"),
        pytest.param({"XDG_CACHE_HOME": "/cache"}, False, NO_HUB, id="the user says where all caches are"),
        pytest.param({}, True, NO_HUB, id="the image has models"),
    ],
)
def test_where_the_libraries_find_their_caches(
    env: dict[str, str], has_hub: bool, expected: dict[str, str | None]
) -> None:
    wanted = {name: value for name, value in expected.items() if value is not None}
    assert settings.variables("/c", env, has_hub=has_hub) == wanted


@pytest.mark.parametrize("name", ["python", "torch", "triton", "processor", "driver", "devices", "image"])
def test_the_key_differs_with_each_fact(name: str) -> None:
    facts = {**machine.facts(), "image": "training:1"}
    assert settings.key({**facts, name: "another"}) != settings.key(facts)
    assert settings.key(dict(reversed(facts.items()))) == settings.key(facts)


def test_the_machine_is_read(tmp_path: Path) -> None:
    gpu, driver = tmp_path / "proc/driver/nvidia/gpus/0000:01", tmp_path / "proc/driver/nvidia/version"
    amd = tmp_path / "sys/class/kfd/kfd/topology/nodes/1"
    gpu.mkdir(parents=True)
    amd.mkdir(parents=True)
    (gpu / "information").write_text("Model: \t\t NVIDIA H200\nIRQ: 1\n")
    (amd / "properties").write_text("cpu_cores_count 0\ngfx_target_version 90402\n")
    driver.write_text("NVRM version: 580.1\nGCC version: 12\n")
    (tmp_path / "proc/cpuinfo").write_text("model name\t: Fast\nMHz : 1\nflags\t: avx2\n\nmodel name\t: Fast\n")
    found = machine.facts(tmp_path)
    assert found["devices"] == "NVIDIA H200; gfx 90402"
    assert (found["driver"], found["processor"]) == ("NVRM version: 580.1", "model name: Fast; flags: avx2")
    assert "__version__" in found["torch"]


def test_an_agent_sets_the_variables_and_keeps_those_of_the_user(tmp_path: Path, temporary: Path) -> None:
    env = {CACHES: CacheRules(str(tmp_path), "image").to_json(), "TRITON_CACHE_DIR": "/own", "HOME": str(tmp_path)}
    pod.prepare(env)
    assert env["TRITON_CACHE_DIR"] == "/own"
    assert Path(env["TORCHINDUCTOR_CACHE_DIR"]).is_dir()
    assert [*temporary.glob("*/precompiled_headers")]
    assert Path(env["HF_HUB_CACHE"]).parent == Path(env["TORCHINDUCTOR_CACHE_DIR"]).parent


def test_models_in_the_image_are_found_where_they_are(tmp_path: Path) -> None:
    (tmp_path / ".cache/huggingface/hub").mkdir(parents=True)
    env = {CACHES: CacheRules(str(tmp_path / "caches")).to_json(), "HOME": str(tmp_path)}
    pod.prepare(env)
    assert "HF_HUB_CACHE" not in env


def test_a_directory_that_cannot_be_written_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    env = {CACHES: CacheRules(str(tmp_path / "file")).to_json()}
    pod.prepare(env)
    assert [*env] == [CACHES]
    assert "no caches are kept" in capsys.readouterr().err


def test_nothing_is_placed_through_a_folder_that_leads_out(tmp_path: Path, folder: CacheFolder) -> None:
    outside, staged = tmp_path / "outside", tmp_path / "staged"
    outside.mkdir()
    staged.write_bytes(b"x")
    (folder.root / "inductor/ab").symlink_to(outside)
    with pytest.raises(OSError, match="leads through"):
        folder.place(staged, "inductor/ab/cd/x.py")
    assert not [*outside.iterdir()]


def test_torch_finds_its_precompiled_headers_in_the_cache(tmp_path: Path, folder: CacheFolder) -> None:
    place = tmp_path / f"torchinductor_{getpass.getuser()}" / "precompiled_headers"
    for newer in (folder, CacheFolder(tmp_path / "caches of another image")):
        pod.link_headers(tmp_path, newer)
        assert place.resolve() == newer.root / "headers"


def test_headers_that_are_there_already_stay(tmp_path: Path, folder: CacheFolder) -> None:
    place = tmp_path / f"torchinductor_{getpass.getuser()}" / "precompiled_headers"
    place.mkdir(parents=True)
    pod.link_headers(tmp_path, folder)
    assert not place.is_symlink()


@pytest.mark.parametrize("text", ["[]", "{}", '{"directory": "/"}', '{"directory": "a"}', '{"directory": 1}'])
def test_a_wrong_variable_is_refused(text: str) -> None:
    with pytest.raises(ContractError, match=CACHES):
        CacheRules.from_json(text)


@pytest.mark.parametrize(
    ("path", "age_ns"),
    [
        pytest.param("inductor/ab/x.py", 0, id="a file that has just been written"),
        pytest.param("inductor/ab/.1.2.tmp", 10 * REST_NS, id="a temporary file of torch"),
        pytest.param("inductor/locks/x.lock", 10 * REST_NS, id="a lock"),
        pytest.param("triton/K/tmp.pid_1_2/x.json", 10 * REST_NS, id="a temporary folder of Triton"),
        pytest.param("inductor/ab/x.so", 10 * REST_NS, id="a library that is none"),
        pytest.param("hub/version.txt", 10 * REST_NS, id="a file beside the models"),
        pytest.param("hub/models--a--b/blobs/1.incomplete", 10 * REST_NS, id="a model on its way"),
    ],
)
def test_what_is_not_offered(folder: CacheFolder, path: str, age_ns: int) -> None:
    put(folder, "inductor/ab/complete.py")
    put(folder, path, age_ns=age_ns)
    assert offered(folder) == ["inductor/ab/complete.py"]


def test_an_open_file_is_not_offered(folder: CacheFolder) -> None:
    found = put(folder, "inductor/ab/x.py").stat()
    assert folder.offer(NOW, {(found.st_dev, found.st_ino)}) == []


def test_links_that_leave_a_model_are_not_offered(folder: CacheFolder) -> None:
    model = put(folder, "hub/models--a--b/blobs/1").parent.parent
    (model / "snapshots/r").mkdir(parents=True)
    (model / "snapshots/r/config.json").symlink_to("../../blobs/1")
    os.utime(model / "snapshots/r/config.json", ns=(NOW - 2 * REST_NS,) * 2, follow_symlinks=False)
    assert offered(folder) == ["hub/models--a--b/blobs/1", "hub/models--a--b/snapshots/r/config.json"]
    (model / "snapshots/r/other").symlink_to("/etc/passwd")
    assert offered(folder) == [], "a model is of use only as a whole"


@pytest.mark.parametrize("kept", [0, 1, 63, 64, 1000, -1], ids=lambda kept: f"cut at {kept}")
def test_a_library_that_is_cut_is_not_offered(folder: CacheFolder, library: bytes, kept: int) -> None:
    put(folder, "inductor/ab/whole.so", library)
    put(folder, "inductor/ab/cut.so", library[:kept])
    assert is_whole_library(folder.root / "inductor/ab/whole.so")
    assert offered(folder) == ["inductor/ab/whole.so"]


def test_what_a_killed_compiler_leaves_is_removed(folder: CacheFolder, library: bytes) -> None:
    for name in ("made.so", "cut.so", "cut.cpp"):
        put(folder, f"inductor/ab/{name}", library)
    put(folder, "inductor/cd/torn.so", library[:100])
    put(folder, "headers/a.h.gch")
    (folder.root / "inductor/ab/cut_CxxBuild").mkdir()
    (folder.root / "headers/a.h_CxxBuild").mkdir()
    assert folder.claim()
    assert sorted(folder.remove_cut(0)) == ["headers/a.h.gch", "inductor/ab/cut.so", "inductor/cd/torn.so"]
    assert offered(folder) == ["inductor/ab/cut.cpp", "inductor/ab/made.so"]
    assert not (folder.root / "inductor/ab/cut_CxxBuild").exists()


def test_a_folder_that_another_pod_uses_is_not_cleared(folder: CacheFolder) -> None:
    other = CacheFolder(folder.root)
    assert other.claim()
    other.share()
    assert not folder.claim()


def test_single_files_come_first_and_units_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MOST_BYTES", 100)
    files = [CachedFile("hub/m/a/1", 60, 1), CachedFile("hub/m/a/2", 60, 1), CachedFile("hub/n/a", 30, 1),
             CachedFile("inductor/old", 10, 1), CachedFile("triton/new", 10, 2)]  # fmt: skip
    assert [file.path for file in listing.choose(files)] == ["triton/new", "inductor/old", "hub/n/a"]


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(["inductor/../../x", 1, 1, ""], id="leaves the folder"),
        pytest.param(["/etc/x", 1, 1, ""], id="absolute"),
        pytest.param(["other/x", 1, 1, ""], id="in no cache"),
        pytest.param(["inductor/a\nb", 1, 1, ""], id="a control character"),
        pytest.param(["inductor/.x", 1, 1, ""], id="hidden"),
        pytest.param(["inductor/x", -1, 1, ""], id="a negative size"),
        pytest.param(["inductor/x", 2**50, 1, ""], id="too large"),
        pytest.param(["inductor/x", 1, -1, ""], id="a negative time"),
        pytest.param(["inductor/x", 1, 1, "y"], id="a link where there are none"),
        pytest.param(["hub/m/s/x", 1, 1, "../../../x"], id="a link that leaves its model"),
        pytest.param(["hub/m/s/x", 1, 1, "/etc/passwd"], id="a link to a file of the image"),
        pytest.param(["inductor/x", 1], id="half an entry"),
        pytest.param(7, id="no entry"),
    ],
)
def test_a_list_that_no_pod_sends_is_refused(entry: object) -> None:
    with pytest.raises(PeerRefusedError):
        listing.from_json(json.dumps([entry]))


TWICE = [["triton/x", 1, 1, ""]] * 2
TOO_MUCH = [[f"triton/{name}", listing.MOST_BYTES, 1, ""] for name in "xy"]


@pytest.mark.parametrize("text", ["", "{}", "7", None, json.dumps(TWICE), json.dumps(TOO_MUCH)])
def test_text_that_is_no_list_is_refused(text: object) -> None:
    with pytest.raises(PeerRefusedError):
        listing.from_json(text)


def test_which_members_a_new_pod_asks() -> None:
    known = ((1, "key", 5), (2, "other", 9), (3, "key", 0), (4, "key", 6), (5, "key", 90), (6, "key", 7))
    others = [Source(rank, "a", 1, key, fill) for rank, key, fill in known]
    assert [source.rank for source in sources.order(OWN, others, 7)] == [5, 1, 4]
    assert Source.from_json(0, OWN.to_json()) == OWN


def test_a_new_pod_looks_at_few_members_of_a_large_job() -> None:
    assert sources.sample(0, 1) == []
    assert sources.sample(1, 2) == [0]
    assert len(sources.sample(7, 1000)) == 10


@pytest.mark.parametrize("text", ["", "[]", '["a", 0, "k", 1]', '["a", 1, 2, 3]', '["a", "1", "k", 1]', "7"])
def test_what_is_no_source_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        Source.from_json(0, text)
