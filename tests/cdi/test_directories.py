import os

import pytest

from base.errors import AccessError, MalformedError, NotFoundError
from cdi.core.library import Library
from cdi.core.yaml_nodes import MAX_BYTES
from cdi.directories import fingerprint, is_spec_name, load_catalog, read_spec_file


def spec(device="a", kind="vv.com/dd", env="A=1"):
    return (
        f"cdiVersion: 0.5.0\nkind: {kind}\ndevices: [{{name: {device}, containerEdits: {{env: [{env}]}}}}]\n"
    )


def devices(catalog):
    return {each.device for each in catalog.devices}


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("a.yaml", True),
        ("a.json", True),
        (".hidden.json", True),
        (".json", True),
        ("a.yml", False),
        ("a.YAML", False),
        ("a.json.tmp", False),
        ("json", False),
        ("a.json~", False),
        ("a", False),
    ],
)
def test_names_that_count(tmp_path, name, read):
    (tmp_path / name).write_text(spec())
    assert is_spec_name(name) is read
    assert devices(load_catalog([tmp_path])) == ({"a"} if read else set())


def test_later_directories_win(tmp_path):
    for name in ("etc", "run"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.yaml").write_text(spec(env=f"A={name}"))
    catalog = load_catalog([tmp_path / "etc", tmp_path / "missing", tmp_path / "run"])
    assert [device.path for device in catalog.devices.values()] == [str(tmp_path / "run/a.yaml")]
    assert catalog.errors == {}


def test_a_bad_file_does_not_sink_the_rest(tmp_path):
    (tmp_path / "a.yaml").write_text(spec())
    (tmp_path / "b.yaml").write_text("{")
    (tmp_path / "c.yaml").write_text("kind: v/d\n")
    catalog = load_catalog([tmp_path])
    assert devices(catalog) == {"a"}
    assert set(catalog.errors) == {str(tmp_path / "b.yaml"), str(tmp_path / "c.yaml")}


def test_rules_of_the_library_count(tmp_path):
    (tmp_path / "a.yaml").write_text(spec().replace("0.5.0", "0.7.0"))
    assert devices(load_catalog([tmp_path], library=Library.V0_6_2)) == set()
    assert devices(load_catalog([tmp_path], library=Library.V0_7_2)) == {"a"}


def test_sub_directories_are_not_read(tmp_path):
    (tmp_path / "sub.yaml").mkdir()
    (tmp_path / "sub.yaml" / "a.yaml").write_text(spec())
    catalog = load_catalog([tmp_path])
    assert (devices(catalog), catalog.errors) == (set(), {})


def test_links_to_files_are_followed(tmp_path):
    (tmp_path / "specs").mkdir()
    (tmp_path / "elsewhere").write_text(spec())
    (tmp_path / "specs" / "a.yaml").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "specs" / "gone.yaml").symlink_to(tmp_path / "nothing")
    (tmp_path / "specs" / "dir.yaml").symlink_to(tmp_path)
    catalog = load_catalog([tmp_path / "specs"])
    assert devices(catalog) == {"a"}
    assert {path.rpartition("/")[2] for path in catalog.errors} == {"gone.yaml", "dir.yaml"}


def test_directories_that_cannot_be_read_are_told(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.yaml").write_text(spec())
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file").write_text(spec())
    catalog = load_catalog([tmp_path / "link", tmp_path / "file"])
    assert devices(catalog) == set()
    assert set(catalog.errors) == {str(tmp_path / "link"), str(tmp_path / "file")}


def test_fifos_do_not_hang(tmp_path):
    os.mkfifo(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_text(spec())
    catalog = load_catalog([tmp_path])
    assert devices(catalog) == {"a"}
    assert set(catalog.errors) == {str(tmp_path / "a.yaml")}
    with pytest.raises(AccessError):
        read_spec_file(tmp_path / "a.yaml")


def test_names_that_are_no_text(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff.yaml"
    with open(path, "wb") as stream:  # noqa: PTH123 - a name that pathlib would have to guess
        stream.write(spec().encode())
    assert devices(load_catalog([tmp_path])) == {"a"}


def test_read_spec_file(tmp_path):
    path = tmp_path / "a.yaml"
    with pytest.raises(NotFoundError):
        read_spec_file(path)
    with pytest.raises(AccessError):
        read_spec_file(tmp_path)
    with pytest.raises(AccessError):
        read_spec_file(tmp_path / "nul\0.yaml")
    path.write_bytes(b"x")
    assert read_spec_file(path) == b"x"
    os.truncate(path, MAX_BYTES + 1)
    with pytest.raises(MalformedError):
        read_spec_file(path)


def test_huge_files_are_recorded(tmp_path):
    (tmp_path / "a.yaml").touch()
    os.truncate(tmp_path / "a.yaml", 1 << 40)
    assert set(load_catalog([tmp_path]).errors) == {str(tmp_path / "a.yaml")}


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "b.yaml").write_text(spec("b")),
        lambda root: (root / "a.yaml").write_text(spec("c")),
        lambda root: (root / "a.yaml").unlink(),
        lambda root: (root / "a.yaml").rename(root / "z.yaml"),
        lambda root: (root / "a.yaml").chmod(0o600),
        lambda root: ((root / "t").write_text(spec()), (root / "t").rename(root / "a.yaml")),
        lambda root: (root.parent / "target").write_text(spec("d")),
        lambda root: ((root / "link.yaml").unlink(), (root / "link.yaml").symlink_to("nowhere")),
        lambda root: root.rename(root.parent / "moved"),
    ],
)
def test_fingerprint_changes(tmp_path, change):
    root = tmp_path / "etc"
    root.mkdir()
    (root / "a.yaml").write_text(spec())
    (tmp_path / "target").write_text(spec("x"))
    (root / "link.yaml").symlink_to(tmp_path / "target")
    before = fingerprint([root])
    assert fingerprint([root]) == before
    change(root)
    assert fingerprint([root]) != before
    assert hash(before)


def test_fingerprint_of_other_files_and_directories(tmp_path):
    before = fingerprint([tmp_path])
    (tmp_path / "a.txt").write_text("x")
    assert fingerprint([tmp_path]) == before
    assert fingerprint([tmp_path / "missing"]) != fingerprint([tmp_path])
    assert fingerprint([tmp_path / "a.txt"])
