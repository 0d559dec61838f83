"""`check_code` finds what is wrong with a code, not only what is right."""

from dataclasses import replace

import numpy as np
import pytest

from codedgrad import codes
from codedgrad.codes.decoders import Bools, FirstHeard, Fixed, Floats, LeastSquares
from codedgrad.codes.sparse import tidy
from codedgrad.errors import Violation
from codedgrad.testing import check_code


@pytest.mark.parametrize(
    "code", [codes.cyclic(24, 3), codes.fractional(12, 2)], ids=str
)
def test_codes_too_large_to_try_all_patterns_pass_too(code: codes.Code) -> None:
    check_code(code)


def test_a_code_that_promises_too_much_is_found() -> None:
    code = replace(
        codes.cyclic(6, 1), tolerance=2, decoder=LeastSquares(codes.cyclic(6, 1).B)
    )
    with pytest.raises(Violation, match="survives any 2 late workers: without"):
        check_code(code)


def test_a_code_that_promises_too_little_is_found() -> None:
    with pytest.raises(Violation, match="survives 2, and promises 1"):
        check_code(replace(codes.cyclic(6, 2), tolerance=1))


def test_a_decoder_that_gives_wrong_weights_is_found() -> None:
    code = codes.uncoded(3)
    with pytest.raises(Violation, match="survives any 0 late workers"):
        check_code(codes.Code("wrong", code.B, 0, FirstHeard()))


class Timid(LeastSquares):
    """Knows the tolerated sets, and no other."""

    def decodable(self, heard: Bools) -> Bools:
        enough = np.count_nonzero(heard, axis=1) >= heard.shape[1] - 1
        return np.asarray(super().decodable(heard) & enough)

    def weights(self, heard: Bools) -> Floats:
        enough = np.count_nonzero(heard, axis=1) >= heard.shape[1] - 1
        return np.asarray(super().weights(heard) * enough[:, None])


def test_a_decoder_that_overlooks_decodable_sets_is_found() -> None:
    B = codes.cyclic(4, 1).B
    with pytest.raises(Violation, match="knows every decodable set"):
        check_code(codes.Code("timid", B, 1, Timid(B)))


class Boastful(Fixed):
    """Calls everything decodable."""

    def decodable(self, heard: Bools) -> Bools:
        return np.ones(len(heard), dtype=np.bool_)


def test_a_decoder_that_calls_everything_decodable_is_found() -> None:
    B = tidy(np.eye(3))
    with pytest.raises(Violation, match="decodable means that the weights are exact"):
        check_code(codes.Code("boastful", B, None, Boastful(B)))
