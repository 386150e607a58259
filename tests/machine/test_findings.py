from machine.core.findings import Finding, Level, error, warning


def test_levels() -> None:
    words = ("gpu-a", "check", "what is wrong", "what to do")
    assert error(*words) == Finding(
        repo="gpu-a", check="check", level=Level.ERROR, detail="what is wrong", remedy="what to do"
    )
    assert warning(*words).level is Level.WARNING
