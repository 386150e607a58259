"""The verdicts of the real library in five releases, where the corpora lie beside the checkout."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdi.core.library import Library
from cdi.core.oci import apply
from cdi.core.resolve import ResolveError, resolve
from cdi.core.spec import SpecError, parse_spec
from cdi.directories import is_spec_name, load_catalog
from cdi.probe import SystemProbe
from tests.shared_data import shared

CASES = shared("cdi", "cases", "expected.json")
DIRECTORIES = shared("cdi", "dircases", "expected.json")
SPECS = shared("cdi", "specs", "oracle.json")


def _read(path: Path | None) -> dict:
    return {} if path is None else json.loads(path.read_text())


def _library(key: str) -> Library:
    return Library(key.rpartition("cdi")[2].partition("(")[0])


def _verdicts(path: Path, by: dict) -> Iterator[tuple[Library, list[str], bool]]:
    for key, verdict in by.items():
        unread = not is_spec_name(path.name)
        yield _library(key), verdict["devices"] or [], verdict["error"] is None and not unread


def _load(path: Path, library: Library) -> tuple[list[str], bool]:
    if not is_spec_name(path.name):
        return [], False
    try:
        spec = parse_spec(path.read_bytes(), library=library)
    except SpecError as error:
        return ([], False) if error.problems else (["an error without a problem"], False)
    return sorted(str(spec.qualified(device)) for device in spec.devices), True


@pytest.mark.skipif(CASES is None, reason="no corpora beside this checkout")
@pytest.mark.parametrize("name", sorted(_read(CASES)))
def test_cases(name):
    case = _read(CASES)[name]
    path = CASES.parent / case["file"]
    for library, devices, valid in _verdicts(path, case["by"]):
        assert _load(path, library) == (devices, valid), library


@pytest.mark.skipif(SPECS is None, reason="no corpora beside this checkout")
@pytest.mark.parametrize("name", sorted(name for name, verdict in _read(SPECS).items() if verdict))
def test_specs(name):
    path = SPECS.parent / name
    by = {key: value for key, value in _read(SPECS)[name].items() if key.startswith(("cdi0", "cdi1"))}
    assert len(by) == len(Library)
    for library, devices, valid in _verdicts(path, by):
        assert _load(path, library) == (devices, valid), library


@pytest.mark.skipif(DIRECTORIES is None, reason="no corpora beside this checkout")
@pytest.mark.parametrize("name", sorted(_read(DIRECTORIES)))
def test_directories(name, monkeypatch):
    case = _read(DIRECTORIES)[name]
    monkeypatch.chdir(DIRECTORIES.parent / name)
    for key, wanted in case["by"].items():
        library = _library(key)
        catalog = load_catalog([Path(directory) for directory in case["dirs"]], library=library)
        if "panic" in wanted:
            assert any("[crash-" in text for texts in catalog.errors.values() for text in texts)
            continue
        assert sorted(map(str, catalog.devices)) == (wanted["devices"] or [])
        assert set(catalog.errors) == set(wanted["errors"])
        _check_injection(case["request"], catalog, wanted, library, name)


def _check_injection(request, catalog, wanted, library, name):
    uid, gid = (1000, 1001) if name == "node-uid-gid-default" else (0, 0)
    bare = {
        "ociVersion": "1.1.0",
        "process": {"cwd": "", "env": ["PATH=/bin"], "user": {"uid": uid, "gid": gid}},
        "linux": {},
    }
    if "inject_error" in wanted:
        with pytest.raises(ResolveError) as caught:
            resolve(request, catalog, SystemProbe(), library=library)
        assert caught.value.message == wanted["inject_error"]
        assert list(caught.value.unresolved) == (wanted["unresolved"] or [])
    else:
        resolved = resolve(request, catalog, SystemProbe(), library=library)
        assert apply(resolved.edits, bare, library=library) == wanted["oci"]
