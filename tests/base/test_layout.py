from pathlib import Path

import pytest

from base.layout import ROOT_VARIABLE, Layout


def test_the_root_comes_from_the_argument_then_the_environment_then_is_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)
    assert Layout.from_environment().root == Path("/")
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    assert Layout.from_environment().root == tmp_path
    assert Layout.from_environment("/other").root == Path("/other")
    monkeypatch.chdir(tmp_path)
    assert Layout.from_environment("relative").root == tmp_path / "relative"


def test_every_path_lies_below_the_root() -> None:
    layout = Layout(Path("/r"))
    repo = layout.repo("0b5f")
    paths = [
        layout.gate_config, layout.repos_dir, layout.inventory, layout.grants, layout.cdi_spec_dir,
        layout.run_dir, layout.state_dir, layout.audit_log, repo.directory, repo.state, repo.socket,
        repo.private, repo.daemon_socket, repo.cdi_spec_dir,
    ]  # fmt: skip
    assert all(path.is_relative_to("/r") for path in paths)
    assert len(set(paths)) == len(paths)
    assert repo.daemon_socket.parent == repo.private
