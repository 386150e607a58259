from pathlib import Path

import pytest

from cli import document


def test_the_page_says_what_help_says() -> None:
    assert document.main(["--check"]) == 0


def test_every_command_has_its_section() -> None:
    page = document.page()
    for command in (
        "rdc repo create", "rdc repo list", "rdc repo show", "rdc repo delete", "rdc repo gpu grant",
        "rdc repo gpu revoke", "rdc repo gpu list", "renet up", "renet gate serve", "renet cdi validate",
        "renet cdi list",
    ):  # fmt: skip
        assert f"\n## {command}\n" in page


def test_a_page_that_is_out_of_date_is_told_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(document, "PAGE", tmp_path / "docs/cli.md")
    assert document.main(["--check"]) == 1
    assert "scripts/cli-docs" in capsys.readouterr().err
    assert document.main([]) == 0
    assert document.main(["--check"]) == 0
    (tmp_path / "docs/cli.md").write_text("old")
    assert document.main(["--check"]) == 1
