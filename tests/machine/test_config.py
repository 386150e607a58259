from pathlib import Path

import pytest

from base.errors import MalformedError
from base.layout import Layout
from machine.config import load_machine_config
from machine.core.settings import EngineSettings, NetworkMode

EXAMPLE = Path(__file__).resolve().parents[2] / "etc/rediacc/gate.yaml"


def write(root: Path, text: str) -> Layout:
    layout = Layout(root)
    layout.gate_config.parent.mkdir(parents=True)
    layout.gate_config.write_text(text)
    return layout


def test_everything_has_a_default(tmp_path: Path) -> None:
    found = load_machine_config(Layout(tmp_path))
    assert found.engine == EngineSettings()
    assert found.cdi_spec_dirs == (tmp_path / "etc/cdi",)


def test_the_example_says_the_defaults(tmp_path: Path) -> None:
    layout = write(tmp_path, EXAMPLE.read_text())
    assert load_machine_config(layout) == load_machine_config(Layout(tmp_path / "none")) or (
        load_machine_config(layout).cdi_spec_dirs == (layout.cdi_spec_dir,)
        and load_machine_config(layout).engine == EngineSettings()
    )


def test_what_is_set_is_read(tmp_path: Path) -> None:
    layout = write(tmp_path, "schema_version: 1\ncdi_spec_dirs: [/a, /b]\nengine: {network: none}\n")
    found = load_machine_config(layout)
    assert found.cdi_spec_dirs == (Path("/a"), Path("/b"))
    assert found.engine.network is NetworkMode.NONE


@pytest.mark.parametrize(
    "text", ["", "schema_version: 1\nengine: {x: 1}\n", "schema_version: 1\nengine: 3\n"]
)
def test_what_cannot_be_understood(tmp_path: Path, text: str) -> None:
    with pytest.raises(MalformedError):
        load_machine_config(write(tmp_path, text))
