from collections.abc import Iterator

from base import errors
from base.errors import RdcError


def _family(cls: type[RdcError]) -> Iterator[type[RdcError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _family(child)


def test_every_error_has_a_code_of_its_own_and_a_documented_exit_code() -> None:
    family = [cls for cls in _family(RdcError) if cls.__module__ == errors.__name__]
    codes = [cls.code for cls in family]
    assert len(codes) == len(set(codes))
    assert {cls.exit_code for cls in family} == {1, 2, 3, 4, 5, 6}
    assert all(400 <= cls.http_status < 600 for cls in family)


def test_the_json_form_carries_code_message_and_hint() -> None:
    error = errors.NotFoundError("no repo 'x'", hint="rdc repo list")
    assert error.to_json() == {"code": "not-found", "message": "no repo 'x'", "hint": "rdc repo list"}
    assert str(error) == "no repo 'x'"
