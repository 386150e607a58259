from pathlib import Path

import pytest

from base.errors import NotFoundError, RefusedError
from machine.core.daemon_config import REQUIRED_TOOLS
from machine.engine import ENGINE_VARIABLE, find_engine, find_tool, search_folders


def program(path: Path, text: str = "exit 0") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def engine(folder: Path, version: str = "28.5.2") -> Path:
    program(folder / "dockerd", f"echo 'Docker version {version}, build deadbeef'")
    for tool in REQUIRED_TOOLS:
        program(folder / tool)
    return folder


def test_a_configured_engine_shadows_everything(tmp_path: Path) -> None:
    mine, other = engine(tmp_path / "a", "28.1.0"), engine(tmp_path / "b", "27.0.0")
    environ = {"PATH": str(other), ENGINE_VARIABLE: str(other)}
    found = find_engine(mine, environ)
    assert found.version == "28.1.0"
    assert found.dockerd == mine / "dockerd"
    assert found.tools["runc"] == mine / "runc"


def test_the_variable_names_an_engine_or_the_folder_above_its_bin(tmp_path: Path) -> None:
    engine(tmp_path / "28/bin")
    for folder in (tmp_path / "28", tmp_path / "28/bin"):
        assert find_engine(None, {ENGINE_VARIABLE: str(folder)}).dockerd == tmp_path / "28/bin/dockerd"


def test_the_path_is_searched_and_relative_entries_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine(tmp_path / "a")
    assert find_engine(None, {"PATH": f"{tmp_path / 'a'}"}).dockerd == tmp_path / "a/dockerd"
    monkeypatch.chdir(tmp_path)
    assert "a" not in search_folders(None, {"PATH": "a:.:"})


def test_tools_beside_the_engine_come_before_the_systems(tmp_path: Path) -> None:
    program(engine(tmp_path / "a") / "xz")
    program(tmp_path / "b/xz")
    found = find_engine(None, {"PATH": f"{tmp_path / 'b'}", ENGINE_VARIABLE: str(tmp_path / "a")})
    assert found.tools["xz"] == tmp_path / "a/xz"


def test_hooks_that_register_device_drivers_are_not_taken_along(tmp_path: Path) -> None:
    folder = engine(tmp_path / "a")
    for name in ("nvidia-container-runtime-hook", "nvidia-cdi-hook", "amd-container-runtime"):
        program(folder / name)
    tools = find_engine(folder, {"PATH": str(folder)}).tools
    assert not [name for name in tools if "nvidia" in name or "amd" in name]


@pytest.mark.parametrize("version", ["20.10.24+dfsg1", "24.0.9", "dev"])
def test_an_engine_without_cdi_is_refused(tmp_path: Path, version: str) -> None:
    with pytest.raises(RefusedError):
        find_engine(engine(tmp_path, version), {})


def test_a_dockerd_that_does_not_run_is_refused(tmp_path: Path) -> None:
    program(engine(tmp_path) / "dockerd", "exit 1")
    with pytest.raises(RefusedError):
        find_engine(tmp_path, {})


def test_a_configured_folder_without_required_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = engine(tmp_path / "a")
    (folder / "runc").unlink()
    monkeypatch.setattr("machine.engine.SYSTEM_PATH", ())
    with pytest.raises(NotFoundError):
        find_engine(folder, {"RDC_CACHE": str(tmp_path)})


def test_no_engine_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("machine.engine.SYSTEM_PATH", ())
    with pytest.raises(NotFoundError):
        find_engine(None, {"RDC_CACHE": str(tmp_path)})


def test_what_install_engine_brought_is_the_last_resort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("machine.engine.SYSTEM_PATH", ())
    engine(tmp_path / "engine/28/bin")
    assert find_engine(None, {"RDC_CACHE": str(tmp_path)}).dockerd == tmp_path / "engine/28/bin/dockerd"


def test_a_tool_is_found_or_not(tmp_path: Path) -> None:
    program(tmp_path / "runsc")
    assert find_tool("runsc", tmp_path, {}) == tmp_path / "runsc"
    assert find_tool("no-such-runtime", tmp_path, {}) is None
