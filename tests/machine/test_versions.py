import pytest

from machine.core.versions import program_version, supported_drivers


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ("Docker version 28.5.2+dfsg3, build deadbeef\n", "28.5.2+dfsg3"),
        ("Docker version 26.1.5+dfsg1, build 411e817\n", "26.1.5+dfsg1"),
        ("containerd github.com/containerd/containerd/v2 v2.1.4 75cb2b7193e4\n", "2.1.4"),
        ("containerd github.com/containerd/containerd 1.7.24~ds1 1.7.24~ds1-6\n", "1.7.24~ds1"),
        ("runc version 1.1.15+ds1\ncommit: 1.1.15+ds1-2+b4\nspec: 1.2.0\n", "1.1.15+ds1"),
        ("runsc version release-20250407.0\nspec: 1.1.0-rc.1\n", "release-20250407.0"),
        (
            "NVIDIA Container Toolkit CLI version 1.17.8\ncommit: f202b80a9b9d0db00d9b1d73c0128c8962c55f4d\n",
            "1.17.8",
        ),
        ("NVIDIA Container Toolkit CLI version 1.18.0-rc.1\n", "1.18.0-rc.1"),
        ("no version here\n", None),
        ("", None),
    ],
)
def test_program_version(output: str, version: str | None) -> None:
    assert program_version(output) == version


def test_supported_drivers() -> None:
    assert supported_drivers(" 550.90.12 \n1000.1\n\nusage: 1\n570.9\n535.129.03\n") == (
        "535.129.03",
        "550.90.12",
        "570.9",
        "1000.1",
    )
    assert supported_drivers("") == ()
