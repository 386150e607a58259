"""Verdicts of the whole reading path; those of 1.0.1 were compared with a real daemon."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdi.core.library import Library
from cdi.core.spec import (
    CRASH_CODES,
    ProblemCode,
    SpecError,
    crashes_daemon,
    engines_loading,
    engines_refusing,
    parse_spec,
)
from tests.strategies import untrusted_bytes

HEAD = "cdiVersion: 0.7.0\nkind: vendor.com/device\n"
DEVICE = "devices:\n- name: a\n  containerEdits:\n    env: [A=1]\n"
JSON = (
    '{"cdiVersion":"0.7.0","kind":"vendor.com/device",'
    '"devices":[{"name":"a","containerEdits":{"env":["A=1"]}}]}'
)


def names(text, library=Library.V1_0_1):
    raw = text if isinstance(text, bytes) else text.encode()
    return [device.name for device in parse_spec(raw, library=library).devices]


def codes(text, library=Library.V1_0_1):
    raw = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(SpecError) as caught:
        parse_spec(raw, library=library)
    return [problem.code for problem in caught.value.problems]


def edits(text):
    return f"{HEAD}devices:\n- name: a\n  containerEdits: {text}\n"


@pytest.mark.parametrize(
    "text",
    [
        HEAD + DEVICE,
        "---\n" + HEAD + DEVICE + "---\n{ [",
        HEAD + DEVICE + "...\ngarbage: [",
        "%YAML 1.1\n---\n" + HEAD + DEVICE,
        b"\xef\xbb\xbf" + (HEAD + DEVICE).encode(),
        (HEAD + DEVICE).replace("\n", "\r\n"),
        (HEAD + DEVICE).encode("utf-16"),
        JSON,
        JSON + " trailing",
        JSON + "]",
        JSON.replace(",", ",\n\t"),
        JSON.replace('"A=1"', '"A=1",'),
        JSON.replace('"', "").replace(":", ": "),
        JSON.replace('"a"', '"\\u0061"'),
        HEAD + DEVICE.replace("name:", '"NAME":'),
        HEAD.replace("kind", "\u212aind").replace("Version", "ver\u017fion") + DEVICE,
        HEAD + DEVICE.replace("[A=1]", "[A=x:y, B=http://z]"),
        HEAD + "annotations: {a: 1, b: true, c: null, 5: x, on: y, 1.5: z}\n" + DEVICE,
        HEAD + "annotations: {x: &a 1, y: &a 2, z: *a}\n" + DEVICE,
        HEAD + "annotations: {}\n" + DEVICE + "containerEdits:\n",
        HEAD + DEVICE + "  annotations: &x {k: v}\ncontainerEdits: {}\nannotations: *x\n",
        HEAD + "devices:\n- name: a\n  <<: [{containerEdits: {env: [A=1]}}, {annotations: {b: c}}]\n",
        HEAD + "annotations: !!str {a: b}\n" + DEVICE,
        HEAD + 'annotations: {1: b, "1": c}\n' + DEVICE,
        edits("{additionalGids: [null]}"),
        edits("{intelRdt: {}}"),
        edits("{intelRdt: {enableCMT: yes, enableMBM: off, closID: 5}}"),
        edits("{hooks: [{hookName: poststop, path: x, timeout: -1, args: [1, null, true]}]}"),
        edits("{deviceNodes: [{path: a, major: -1, fileMode: 438.0, uid: 0x10, permissions: rrw, type: u}]}"),
        edits("{mounts: [{hostPath: ., containerPath: ..}], env: null}"),
        edits("{env: [' =x', 'A=\\x01=2']}"),
    ],
)
def test_loaded(text):
    assert names(text) == ["a"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "empty"),
        (" \n# x\n", "empty"),
        ("null", "empty"),
        ("---\n---\n" + HEAD, "empty"),
        ("[]", "wrong-type"),
        ("5", "wrong-type"),
        ("{", "syntax"),
        ("a: b: c", "syntax"),
        ("%YAML 1.2\n---\n" + HEAD + DEVICE, "syntax"),
        (HEAD + DEVICE + "# \x01", "syntax"),
        ((HEAD + DEVICE).encode() + b"# \xff", "syntax"),
        (HEAD + DEVICE.replace("  ", "\t"), "syntax"),
        (JSON.replace("A=1", "A=\\/"), "syntax"),
        (JSON.replace("A=1", "\\ud83d\\ude00=1"), "syntax"),
        (edits("{env: [A=1?]}"), "syntax"),
        (edits("{env: [*x]}"), "syntax"),
        (HEAD + HEAD + DEVICE, "duplicate-key"),
        (HEAD + "annotations: {0x10: a, 16: b}\n" + DEVICE, "duplicate-key"),
        (HEAD + "devices:\n- <<: {name: a}\n  name: b\n  containerEdits: {env: [A=1]}\n", "duplicate-key"),
        (HEAD + "annotations: {~: b}\n" + DEVICE, "bad-key"),
        (HEAD + "annotations: {[a]: b}\n" + DEVICE, "bad-key"),
        (HEAD + DEVICE + "  <<: x\n", "bad-key"),
        (HEAD + "annotations: {18446744073709551615: b}\n" + DEVICE, "bad-key"),
        (HEAD + 'annotations: {1: [b], "1": c}\n' + DEVICE, "ambiguous-key"),
        (edits("{env: [!!int x]}"), "bad-scalar"),
        (HEAD + DEVICE + "x: y\n", "unknown-field"),
        (HEAD + DEVICE + "  x:\n", "unknown-field"),
        (HEAD + DEVICE + '"<<": {}\n', "unknown-field"),
        (HEAD.replace("kind", "k\u0131nd") + DEVICE, "unknown-field"),
        (edits("{netDevices: []}"), "unknown-field"),
        (edits("{intelRdt: {schemata: []}}"), "unknown-field"),
        (edits("{env: A=1}"), "wrong-type"),
        (edits("{env: [[A=1]]}"), "wrong-type"),
        (edits("{env: [A: 1]}"), "wrong-type"),
        (edits("{deviceNodes: [{path: a, fileMode: '0666'}]}"), "wrong-type"),
        (edits("{deviceNodes: [{path: a, uid: -0.0}]}"), "wrong-type"),
        (edits("{additionalGids: [1.5]}"), "wrong-type"),
        (edits("{deviceNodes: [{path: a, major: .nan}]}"), "wrong-type"),
        (edits("{deviceNodes: [{path: a, uid: 4294967296}]}"), "out-of-range"),
        (edits("{additionalGids: [-1]}"), "out-of-range"),
        (edits("{deviceNodes: [{path: a, major: 9223372036854775808}]}"), "out-of-range"),
        (edits("{intelRdt: {enableCMT: 'true'}}"), "wrong-type"),
        (HEAD + "devices: {}\n", "wrong-type"),
        (HEAD.replace("0.7.0", "1.0") + DEVICE, "version"),
        (HEAD.replace("0.7.0", "vv0.7.0") + DEVICE, "version"),
        (HEAD.replace("0.7.0", "1.1.0") + DEVICE, "version"),
        (HEAD.replace("0.7.0", "v0.2.0") + DEVICE, "version-too-low"),
        (HEAD, "no-devices"),
        (HEAD + "devices: []\n", "no-devices"),
        (HEAD + DEVICE + "- name: b\n", "empty-edits"),
        (HEAD + "devices: [null]\n", "device-name"),
        (HEAD + DEVICE + DEVICE[9:], "duplicate-device"),
        (HEAD.replace("/device", "") + DEVICE, "kind"),
        (HEAD.replace("/device", "/a/b") + DEVICE, "kind"),
        (edits("{env: [null]}"), "env"),
        (edits("{deviceNodes: [{path: ''}]}"), "device-node"),
        (edits("{deviceNodes: [{path: a, permissions: none}]}"), "device-node"),
        (edits("{mounts: [{hostPath: a}]}"), "mount"),
        (edits("{hooks: [{hookName: PreStart, path: x}]}"), "hook"),
        (edits("{hooks: [{hookName: prestart}]}"), "hook"),
        (edits("{hooks: [{hookName: prestart, path: x, env: [A]}]}"), "env"),
        (edits('{intelRdt: {closID: "a\\nb"}}'), "intel-rdt"),
        (HEAD.replace("vendor.com", "v") + DEVICE, "crash-one-letter"),
        (HEAD.replace("device", "d") + DEVICE, "crash-one-letter"),
        (edits("{deviceNodes: [null]}"), "crash-null"),
        (edits("{mounts: [{hostPath: a, containerPath: b}, ~]}"), "crash-null"),
        (HEAD + DEVICE + "containerEdits: {Hooks: [null]}\n", "crash-null"),
        (HEAD + DEVICE + "a: " + "[" * 1500 + "]" * 1500, "syntax"),
    ],
)
def test_refused(text, code):
    assert code in codes(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("- name: 0", ["0"]),
        ("- name: on", ["true"]),
        ("- name: 010", ["8"]),
        ("- name: 1:30", ["1:30"]),
        ("- name: 1.50", ["1.5"]),
        ("- name: 0.30000000000000004", ["0.3"]),
        ("- name: ! 010", ["010"]),
        ("- name: !!str 010", ["010"]),
        ("- name: !!binary YQ==", ["a"]),
        ("- name: 2001-12-14", ["2001-12-14"]),
        ("- name: &x 5\n  annotations: {k: *x}", ["5"]),
        ("- Name: z\n  name: b", ["b"]),
        ("- NAME: z\n  Name: c", ["c"]),
        ("- Name: z\n  name: null", ["z"]),
    ],
)
def test_names_as_go_reads_them(text, wanted):
    assert names(HEAD + "devices:\n" + text + "\n  containerEdits: {env: [A=1]}\n") == wanted


def test_spellings_of_a_field_are_merged_in_byte_order():
    spec = parse_spec(
        f"{HEAD}DEVICES:\n- {{name: a, containerEdits: {{env: [A=1, B=2]}}}}\n- {{name: b}}\n"
        "Devices:\n- {ContainerEdits: {env: [C=3]}}\n"
        "devices:\n- {}\n- {containerEdits: {hooks: [], env: [D=4]}}\n".encode()
    )
    assert [(device.name, device.container_edits.env) for device in spec.devices] == [
        ("a", ("C=3",)),
        ("b", ("D=4",)),
    ]


def test_an_emptied_list_forgets_its_elements():
    full = "- {name: a, containerEdits: {env: [A=1]}}"
    text = f"{HEAD}DEVICES:\n{full}\nDevices: []\ndevices: [{{name: z}}]\n"
    assert codes(text) == [ProblemCode.EMPTY_EDITS]


@pytest.mark.parametrize(
    ("text", "line", "column", "pointer"),
    [
        (edits("{env: [A]}"), 5, 26, "/devices/0/containerEdits/env/0"),
        (HEAD + DEVICE + "  x: y\n", 7, 3, "/devices/0/x"),
        (HEAD + "Devices:\n- NAME: a b\n  containerEdits: {env: [A=1]}\n", 4, 9, "/Devices/0/NAME"),
        (HEAD + "devices:\n- name: a\n", 4, 3, "/devices/0"),
        (HEAD + "annotations: {a/b~c: [x]}\n" + DEVICE, 3, 22, "/annotations/a~1b~0c"),
        (HEAD, 1, 1, ""),
        ("a: [", 2, 1, ""),
    ],
)
def test_problems_are_located(text, line, column, pointer):
    with pytest.raises(SpecError) as caught:
        parse_spec(text.encode())
    problem = caught.value.problems[0]
    assert (problem.line, problem.column, problem.pointer) == (line, column, pointer)
    assert str(problem).startswith(f"line {line}, column {column}: ")


@pytest.mark.parametrize(
    ("version", "snippet", "first"),
    [
        ("0.3.0", "{env: [A=1]}", "0.6.2"),
        ("0.7.0", "{env: [A=1]}", "0.7.2"),
        ("0.8.0", "{env: [A=1]}", "0.8.0"),
        ("1.0.0", "{env: [A=1]}", "1.0.1"),
        ("1.1.0", "{env: [A=1]}", "1.1.0"),
        ("0.7.0", "{additionalGids: [1]}", "0.7.2"),
        ("0.7.0", "{intelRdt: {closID: a}}", "0.7.2"),
        ("1.1.0", "{netDevices: [{hostInterfaceName: a, name: b}]}", "1.1.0"),
        ("1.1.0", "{intelRdt: {schemata: []}}", "1.1.0"),
        ("0.7.0", "{intelRdt: {closID: /}}", "1.1.0"),
        ("0.7.0", "{intelRdt: {enableMonitoring: false}}", "1.1.0"),
    ],
)
def test_releases_that_load(version, snippet, first):
    raw = edits(snippet).replace("0.7.0", version, 1).encode()
    loading = tuple(library for library in Library if library.at_least(Library(first)))
    assert engines_loading(raw) == loading
    assert set(engines_refusing(raw)) == set(Library) - set(loading)


def test_1_1_0_dropped_two_fields():
    assert list(engines_refusing(edits("{intelRdt: {enableCMT: false}}").encode())) == [
        Library.V0_6_2,
        Library.V1_1_0,
    ]


def test_a_spec_without_devices_was_valid_before_1_0():
    raw = b"cdiVersion: 0.5.0\nkind: vendor.com/device\n"
    assert list(engines_refusing(raw)) == [Library.V1_0_1, Library.V1_1_0]
    assert parse_spec(raw, library=Library.V0_8_0).devices == ()


@pytest.mark.parametrize(
    ("feature", "needed"),
    [
        ("annotations: {a: b}\n" + DEVICE, "0.6.0"),
        (DEVICE + "  annotations: {a: b}\n", "0.6.0"),
        (DEVICE.replace("a\n", "'0'\n"), "0.5.0"),
        (DEVICE + "    deviceNodes: [{path: a, hostPath: a}]\n", "0.5.0"),
        (DEVICE + "    mounts: [{hostPath: a, containerPath: b, type: c}]\n", "0.4.0"),
        (DEVICE + "containerEdits: {additionalGids: [0]}\n", "0.7.0"),
        (DEVICE + "containerEdits: {intelRdt: {}}\n", "0.7.0"),
        (DEVICE + "    additionalGids: []\n    mounts: []\n", "0.3.0"),
        ("annotations: {}\n" + DEVICE, "0.3.0"),
        (DEVICE + "    mounts: [{hostPath: a, containerPath: b, type: ''}]\n", "0.3.0"),
    ],
)
def test_lowest_version(feature, needed):
    versions = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0")
    text = "cdiVersion: {}\nkind: vendor.com/device\n" + feature.replace("{", "{{").replace("}", "}}")
    for version in versions:
        if version < needed:
            assert codes(text.format(version)) == [ProblemCode.VERSION_TOO_LOW]
        else:
            assert names(text.format(version))


@pytest.mark.parametrize(
    ("closid", "valid"),
    [
        ("x" * 4095, True),
        ("x" * 4096, False),
        ("é" * 2048, False),
        ("é" * 2047, True),
        (".", False),
        ("...", True),
    ],
)
def test_closid(closid, valid):
    spec = {"cdiVersion": "0.7.0", "kind": "vendor.com/device"}
    spec["devices"] = [{"name": "a", "containerEdits": {"intelRdt": {"closID": closid}}}]
    refused = engines_refusing(json.dumps(spec, ensure_ascii=False).encode())
    assert (Library.V1_0_1 not in refused) is valid


@pytest.mark.parametrize(
    ("devices", "valid"),
    [
        ([("h0", "n0"), ("h1", "n1")], True),
        ([("h0", "n0"), ("h0", "n1")], False),
        ([("h0", "n0"), ("h1", "n0")], False),
        ([("", "n0")], False),
        ([("h0", "")], False),
    ],
)
def test_net_devices(devices, valid):
    items = ", ".join(f"{{hostInterfaceName: '{host}', name: '{name}'}}" for host, name in devices)
    text = edits(f"{{netDevices: [{items}]}}").replace("0.7.0", "1.1.0")
    if valid:
        assert names(text, Library.V1_1_0) == ["a"]
    else:
        assert set(codes(text, Library.V1_1_0)) == {ProblemCode.NET_DEVICE}


@pytest.mark.parametrize(
    ("text", "crashes"),
    [
        (HEAD + DEVICE, False),
        (HEAD.replace("vendor.com", "v") + DEVICE, True),
        ("kind: vv/d\nx: y\n", True),
        (edits("{netDevices: [null]}"), True),
        (edits("{env: [null], additionalGids: [null]}"), False),
        (HEAD + "DEVICES: [{ContainerEdits: {MOUNTS: [~]}}]\n", True),
        ("{", False),
        ("", False),
        ("[]", False),
        ("kind: 1/22\n", False),
        (HEAD + "devices: [null]\n", False),
    ],
)
def test_crashes_daemon(text, crashes):
    problems = crashes_daemon(text.encode())
    assert bool(problems) is crashes
    assert {problem.code for problem in problems} <= CRASH_CODES


def test_many_aliases_are_refused_quickly():
    bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
    )
    assert codes(bomb) == [ProblemCode.ALIASES]


def test_alias_to_what_holds_it():
    assert codes(HEAD + "devices: &d\n- name: a\n  containerEdits: {env: *d}\n") == [ProblemCode.SYNTAX]


def test_too_large():
    assert codes(b" " * (32 * 1024 * 1024 + 1)) == [ProblemCode.TOO_LARGE]


def test_problems_are_bounded():
    assert len(codes(edits("{env: [" + "x," * 1000 + "]}"))) == 100
    assert len(codes(edits("{mounts: [" + "null," * 1000 + "]}"))) == 100


def test_large_specs_load():
    text = (
        HEAD
        + "devices:\n"
        + "".join(f"- {{name: d{i}, containerEdits: {{env: [A={i}]}}}}\n" for i in range(3000))
    )
    assert len(names(text)) == 3000


@settings(max_examples=300)
@given(untrusted_bytes, st.sampled_from(list(Library)))
def test_parse_is_total(raw, library):
    problems = ()
    try:
        spec = parse_spec(raw, library=library)
    except SpecError as error:
        problems = error.problems
    else:
        assert not crashes_daemon(raw)
        assert len({spec.qualified(device) for device in spec.devices}) == len(spec.devices)
        return
    assert problems
    assert all(problem.line is None or problem.line > 0 for problem in problems)


@given(untrusted_bytes)
def test_crashes_daemon_is_total(raw):
    for problem in crashes_daemon(raw):
        assert problem.code in CRASH_CODES
