from tests.cli.rdc.runner import Rdc


def test_a_machine_without_gate_is_ill_and_says_how_to_mend_it(rdc: Rdc) -> None:
    rdc.write_spec()
    rdc.create("gpu-a")
    done = rdc.json("doctor")
    assert done.code == 1
    assert [(row["repo"], row["check"], row["level"]) for row in done.rows] == [
        ("", "gate", "error"),
        ("gpu-a", "gate-socket", "error"),
        ("gpu-a", "daemon", "error"),
    ]
    assert all(row["detail"] and row["remedy"] for row in done.rows)
    table = rdc("doctor", "gpu-a")
    assert table.code == 1
    assert "gate-socket" in table.out


def test_grants_that_have_come_to_nothing(rdc: Rdc) -> None:
    rdc.write_spec()
    rdc.create("gpu-a")
    assert rdc("repo", "gpu", "grant", "gpu-a", "--device", "nvidia.com/gpu=0").code == 0
    (rdc.spec_dir / "nvidia.yaml").unlink()
    checks = {row["check"]: row["level"] for row in rdc.json("doctor", "gpu-a").rows}
    assert checks["grant-unresolvable"] == "error"


def test_an_unknown_repo(rdc: Rdc) -> None:
    done = rdc.json("doctor", "nobody")
    assert done.code == 5
    assert done.error["code"] == "not-found"
