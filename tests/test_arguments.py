import pytest
import torch

from volmin import losses
from volmin.arguments import named
from volmin.transition import apply_transition, log_volume

LOGITS, T, Y = torch.zeros(4, 3), torch.eye(3), torch.tensor([0, 1, 2, 0])


@pytest.mark.parametrize(
    ("logits", "matrix", "y", "message"),
    [
        (None, T, Y, "logits must be a tensor, but is NoneType"),
        (LOGITS, T, Y.tolist(), "y must be a tensor, but is list"),
        (LOGITS[0], T, Y, r"logits must have 2 dimensions, but has shape \(3,\)"),
        (LOGITS, T, Y + 1, r"y must lie in 0\.\.2, but spans 1\.\.3"),
        (LOGITS, T, Y.float(), "y must be of the type int64"),
        (LOGITS, torch.eye(4), Y, "T is for 4 classes"),
        (LOGITS, T[:2], Y, "T must be square"),
        (LOGITS, T, Y[:2], "y must hold a label for each of the 4 rows"),
    ],
)
@pytest.mark.parametrize("name", ["forward_nll", "backward_nll", "importance"])
def test_losses_name_the_argument_that_is_wrong(name, logits, matrix, y, message):
    with pytest.raises(ValueError, match=message):
        getattr(losses, name)(logits, matrix, y)


def test_matrices_that_hold_no_numbers_are_named():
    with pytest.raises(ValueError, match="T holds NaN"):
        losses.backward_nll(LOGITS, torch.full((3, 3), torch.nan), Y)
    with pytest.raises(ValueError, match="T must be a tensor"):
        log_volume([[1.0]])
    with pytest.raises(ValueError, match="T and clean must be of one type"):
        apply_transition(LOGITS, T.double())
    with pytest.raises(ValueError, match=r"do not fit each other: probs \(4, 3\), others \(3, 2\)"):
        losses.total_variation(LOGITS, torch.zeros(3, 2))


def test_other_failures_stay_what_they_are():
    @named
    def fails(count):
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        fails(3)
    assert fails.__name__ == "fails"
