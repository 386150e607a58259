"""What is done to a bundle before runc makes a container of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from machine import runc_child
from machine.view import View, launch
from tests.engine import Engine

PROGRAM = Path(runc_child.__file__)


def run(bundle: Path, *arguments: str, guards: tuple[str, ...] = ()) -> "subprocess.CompletedProcess[str]":
    command = (sys.executable, "-I", "-S", str(PROGRAM), "/bin/echo", *arguments)
    seen = launch(View(guards=guards, own=(), hidden=()), command)
    return subprocess.run(seen, capture_output=True, text=True, check=False, cwd=bundle)


@pytest.fixture
def bundle(tmp_path: Path, engine28: Engine) -> Path:
    (tmp_path / "root/dir").mkdir(parents=True)
    (tmp_path / "root/link").symlink_to("dir")
    sources = {"guarded": "root/dir", "link": "root/link", "gone": "root/none", "free": "."}
    mounts: list[dict[str, object]] = [
        {"destination": f"/{name}", "type": "bind", "source": str(tmp_path / path), "options": ["rbind"]}
        for name, path in sources.items()
    ]
    mounts.append({"destination": "/untyped", "source": str(tmp_path / "root"), "options": ["bind"]})
    mounts.append({"destination": "/proc", "type": "proc", "source": str(tmp_path / "root"), "options": []})
    mounts.append({"destination": "/bare", "type": "bind", "source": str(tmp_path / "root")})
    (tmp_path / "b").mkdir()
    (tmp_path / "b/config.json").write_text(json.dumps({"ociVersion": "1.2.0", "mounts": mounts}))
    return tmp_path / "b"


def opened(bundle: Path) -> list[str]:
    config = json.loads((bundle / "config.json").read_text())
    return [each["destination"] for each in config["mounts"] if "rsymfollow" in each.get("options", ())]


@pytest.mark.parametrize("spelled", [("--bundle", "{}"), ("--bundle={}",), ("-b", "{}"), ("-b={}",), ()])
def test_links_are_given_back_where_they_were_taken(bundle: Path, spelled: tuple[str, ...]) -> None:
    words = ("--root", "/r", "create", *(word.format(bundle) for word in spelled), "--pid-file", "p", "id")
    done = run(bundle, *words, guards=(str(bundle.parent / "root"),))
    assert done.stdout == " ".join(words) + "\n", done.stderr
    assert opened(bundle) == ["/guarded", "/untyped"]
    assert [path.name for path in bundle.iterdir()] == ["config.json"]


def test_a_bundle_without_guarded_binds_stays_as_it_is(bundle: Path) -> None:
    before = (bundle / "config.json").stat()
    assert run(bundle, "create", "id").returncode == 0
    assert (bundle / "config.json").stat() == before


@pytest.mark.parametrize("content", ["{", "[]", '{"mounts": 1}', None])
def test_what_cannot_be_read_starts_nothing(bundle: Path, content: str | None) -> None:
    (bundle / "config.json").unlink()
    if content is not None:
        (bundle / "config.json").write_text(content)
    done = run(bundle, "create", "id")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("cannot prepare the container's binds: ")
