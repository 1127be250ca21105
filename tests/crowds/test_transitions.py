import math

import numpy as np
import pytest
import scipy
import torch
from torch.nn.functional import one_hot
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from volmin import noise
from volmin.crowds import AnnotatorTransitions, answers_nll, posterior_log_volume, stacked
from volmin.exceptions import InputError
from volmin.losses import forward_nll
from volmin.transition import DominantTransition, log_volume


def test_one_annotator_is_volminnet():
    """Matrix, likelihood and volume of one annotator are exactly those of a single T."""
    generator = torch.Generator().manual_seed(0)
    single, one = DominantTransition(4), AnnotatorTransitions(4, 1)
    assert [p.shape for p in one.parameters()] == [p.shape for p in single.parameters()]
    with torch.no_grad():
        single.w.copy_(torch.randn(4, 4, generator=generator))
        one.pooled.w.copy_(single.w)
    assert torch.equal(one()[0], single())
    logits, y = torch.randn(20, 4, generator=generator), torch.randint(4, (20,), generator=generator)
    assert torch.allclose(answers_nll(logits, one(), y[:, None]), forward_nll(logits, single(), y))
    assert torch.equal(log_volume(stacked(one())), log_volume(single()))
    assert one.penalty() == 0


def test_deviation_reaches_a_spammer_and_keeps_columns_stochastic():
    matrices = AnnotatorTransitions(3, 2)
    assert matrices.deviations is not None
    with torch.no_grad():
        matrices.deviations.values[1, 0] = 20
    T = matrices()
    assert torch.allclose(T.sum(1), torch.ones(2, 3))
    assert torch.allclose(T[0], matrices.pooled())
    assert torch.allclose(T[1, 0], torch.ones(3), atol=1e-4)


def test_abstentions_are_an_extra_row():
    T = AnnotatorTransitions(3, 2, abstains=True)()
    assert T.shape == (2, 4, 3)
    assert torch.allclose(T.sum(1), torch.ones(2, 3))
    assert (T.diagonal(dim1=1, dim2=2) > T[:, 3]).all()


def test_volume_of_the_stack():
    T = torch.tensor(np.stack([noise.pair(3, 0.3), noise.symmetric(3, 0.4)]))
    W = T.reshape(6, 3)
    expected = 0.5 * torch.logdet(W.T @ W / 2)
    assert torch.allclose(log_volume(stacked(T)), expected, atol=1e-4)
    assert torch.allclose(log_volume(stacked(T[:1].expand(5, -1, -1))), log_volume(T[0]), atol=1e-6)


def test_volume_of_posteriors():
    certain = one_hot(torch.arange(30) % 3, 3).double()
    assert abs(posterior_log_volume(certain)) < 1e-5
    T = torch.tensor(noise.pair(3, 0.3))
    # H T' spans a volume that is smaller by |det T|.
    assert torch.allclose(posterior_log_volume(certain @ T.T), -log_volume(T), atol=1e-4)


def test_missing_answers_do_not_count():
    generator = torch.Generator().manual_seed(0)
    T = torch.tensor(np.stack([noise.pair(3, 0.2), noise.pair(3, 0.4)]))
    logits = torch.randn(4, 3, generator=generator, dtype=torch.double)
    y = torch.tensor([[0, -1], [1, 2], [-1, -1], [-1, 0]])
    h = logits.softmax(1)
    given = [(0, 0, 0), (1, 0, 1), (1, 1, 2), (3, 1, 0)]
    expected = -sum(math.log(T[m, k] @ h[i]) for i, m, k in given) / 4
    assert answers_nll(logits, T, y).item() == pytest.approx(expected)
    empty = logits.clone().requires_grad_()
    answers_nll(empty, T, torch.full((4, 2), -1)).backward()
    assert empty.grad is not None
    assert (empty.grad == 0).all()


def test_full_weight_is_the_likelihood_of_all_answers_to_an_item():
    generator = torch.Generator().manual_seed(0)
    T = torch.tensor(np.stack([noise.pair(3, 0.2), noise.pair(3, 0.4)]))
    logits, y = torch.randn(2, 3, generator=generator, dtype=torch.double), torch.tensor([[0, 1], [2, -1]])
    h = logits.softmax(1)
    first, second = (h[0] * T[0, 0] * T[1, 1]).sum().log(), (h[1] * T[0, 2]).sum().log()
    assert torch.allclose(answers_nll(logits, T, y, 1.0), -(2 * first + second) / 3)


def test_bad_arguments():
    logits, T = torch.zeros(4, 3), torch.eye(3).expand(2, 3, 3)
    with pytest.raises(InputError, match="do not fit"):
        answers_nll(logits, T, torch.zeros(4, 3, dtype=torch.long))
    with pytest.raises(InputError, match=r"0\.\.2"):
        answers_nll(logits, T, torch.full((4, 2), 3))
    with pytest.raises(InputError, match="at least 1"):
        AnnotatorTransitions(3, 0)


def test_either_volume_decides_where_any_matrices_fit():
    """Exact answer probabilities of items of 60 kinds, and a classifier that can fit any T: the likelihood is flat."""
    generator = np.random.default_rng(0)
    h = generator.dirichlet(np.full(3, 0.5), size=4800)
    h = h[h.max(axis=1) < 0.8][:60]
    T = []
    for _ in range(5):
        wrong = generator.dirichlet(np.full(3, 20), size=3).T
        np.fill_diagonal(wrong, 0)
        diagonal = generator.uniform(0.45, 0.65, size=3)
        T.append(wrong / wrong.sum(axis=0) * (1 - diagonal) + np.diag(diagonal))
    T = np.stack(T)
    answers = torch.tensor(np.einsum("mrc,kc->kmr", T, h))

    def error(lam, volume):
        matrices = AnnotatorTransitions(3, 5).double()
        logits = torch.nn.Parameter(torch.zeros(60, 3, dtype=torch.float64))
        parameters = [logits, *matrices.parameters()]

        def objective(vector):
            vector_to_parameters(torch.as_tensor(vector), parameters)
            found, probs = matrices(), logits.softmax(1)
            likelihood = torch.einsum("mrc,kc->kmr", found, probs).log()
            value = lam * (log_volume(stacked(found)) if volume == "matrices" else posterior_log_volume(probs))
            value = value - (answers * likelihood).sum() / answers.sum()
            return value.item(), parameters_to_vector(torch.autograd.grad(value, parameters)).numpy()

        start = parameters_to_vector(parameters).detach().numpy()
        options = {"maxiter": 600, "maxcor": 30, "ftol": 1e-13}
        scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
        return np.abs(matrices().detach().numpy() - T).sum(axis=(1, 2)).mean() / 3

    without = error(0, "matrices")
    assert without > 0.12
    assert error(1e-4, "matrices") < without / 3
    assert error(1e-4, "posteriors") < without / 3
