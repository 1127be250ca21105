import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import volmin
from volmin import noise
from volmin.exceptions import DegenerateTransitionWarning, InputError
from volmin.training import Recipe
from volmin.transition import (
    DominantTransition,
    SoftmaxTransition,
    TangentLogVolume,
    apply_transition,
    dominant,
    log_volume,
    start_value,
    transition_error,
    validate_transition,
    warn_if_degenerate,
)

# The largest entry of each column is on the diagonal, and yet the determinant is negative.
DOMINANT_BUT_NEGATIVE = np.array([[1, 0.9, 0], [0.9, 1, 0.9], [0, 0.9, 1]])
DOMINANT_BUT_NEGATIVE = DOMINANT_BUT_NEGATIVE / DOMINANT_BUT_NEGATIVE.sum(0)


def from_w(w, shared_level=False):
    model = DominantTransition(len(w), 0.0, shared_level=shared_level).double()
    with torch.no_grad():
        model.w.copy_(torch.as_tensor(w))
    return model


@given(st.integers(2, 12).flatmap(lambda c: arrays(float, (c, c), elements=st.floats(-20, 10))), st.booleans())
def test_any_parameters_give_a_dominant_stochastic_matrix(w, shared_level):
    T = from_w(w, shared_level)().detach().numpy()
    assert np.allclose(T.sum(0), 1, atol=1e-6)
    assert (T > 0).all()
    assert (T < 1).all()
    for j in range(len(T)):
        assert T[j, j] > np.delete(T[:, j], j).max()


@pytest.mark.parametrize(
    ("num_classes", "init", "diagonal", "off", "volume"),
    [
        (10, -2, 0.482433, 0.057507, -7.7026),
        (10, None, 0.5, 0.055556, -7.2984),
        (100, -4.5, 0.478994, 0.005263, -73.964),
        (14, -2.5, 0.503485, 0.038193, -9.9462),
    ],
)
@pytest.mark.parametrize("shared_level", [False, True])
def test_start_values_of_the_paper_and_of_its_code(num_classes, init, diagonal, off, volume, shared_level):
    T = DominantTransition(num_classes, init, shared_level=shared_level)()
    assert T[0, 0].item() == pytest.approx(diagonal, abs=1e-6)
    assert T[1, 0].item() == pytest.approx(off, abs=1e-6)
    assert log_volume(T).item() == pytest.approx(volume, abs=2e-3)


def test_default_start_is_the_one_of_the_paper_except_for_two_classes():
    assert start_value(10) == pytest.approx(math.log(1 / 8))
    T = DominantTransition(2)()
    assert torch.linalg.det(T) > 0.3
    assert DominantTransition(3, start_value(3, 0.9))()[2, 2].item() == pytest.approx(0.9)
    with pytest.raises(InputError, match="between 1/3 and 1"):
        start_value(3, 0.2)
    with pytest.raises(InputError, match="at least 2"):
        DominantTransition(1)


@pytest.mark.parametrize("shared_level", [False, True])
def test_start_at_reproduces_a_matrix_up_to_the_dominant_diagonal(shared_level):
    T = noise.asymmetric(5, 0.3, seed=1)
    model = DominantTransition(5, shared_level=shared_level)
    model.start_at(T)
    assert transition_error(T, model()) < 1e-6
    model.start_at(noise.pair(5, 0.6))
    found = model().detach()
    assert (found.diagonal()[:4] > found[1:, :4].diagonal()).all(), "no entry exceeds the diagonal"
    assert transition_error(noise.pair(5, 0.5), found) < 0.05


def test_volume_gradient_has_the_closed_form():
    w = torch.randn(6, 6, dtype=torch.double, generator=torch.Generator().manual_seed(0)) - 2
    model = from_w(w)
    T = model()
    log_volume(T, floor=0).backward()
    sigma, inverse = torch.sigmoid(w), torch.linalg.inv(T.detach())
    A = sigma.masked_fill(torch.eye(6, dtype=torch.bool), 1)
    expected = sigma * (1 - sigma) / A.sum(0) * (inverse.T - 1)
    expected.fill_diagonal_(0)
    assert model.w.grad is not None
    assert torch.allclose(model.w.grad, expected, atol=1e-9)


def test_minimising_the_volume_alone_increases_every_off_diagonal_entry():
    model = DominantTransition(5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model().detach()
    for _ in range(20):
        optimizer.zero_grad()
        log_volume(model()).backward()
        optimizer.step()
    off = ~torch.eye(5, dtype=torch.bool)
    assert (model().detach()[off] > before[off]).all()


@pytest.mark.parametrize(
    ("T", "expected"),
    [
        (noise.symmetric(10, 0.2), -2.2618),
        (noise.pair(10, 0.45), -6.1227),
        (noise.symmetric(100, 0.2), -22.3415),
        (noise.pair(100, 0.45), -59.7837),
        (np.eye(7), 0.0),
    ],
)
def test_log_volume_is_the_log_determinant(T, expected):
    assert log_volume(torch.tensor(T)).item() == pytest.approx(expected, abs=2e-3)
    assert log_volume(torch.tensor(T), floor=0).item() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("T", [np.full((3, 3), 1 / 3), noise.pair(4, 0.5), DOMINANT_BUT_NEGATIVE])
def test_log_volume_and_gradient_are_finite_for_singular_matrices(T):
    tensor = torch.tensor(T, dtype=torch.float32, requires_grad=True)
    volume = log_volume(tensor)
    assert torch.isfinite(volume)
    assert torch.isfinite(torch.autograd.grad(volume, tensor)[0]).all()


def test_log_volume_propagates_nan():
    T = torch.full((3, 3), math.nan, requires_grad=True)
    volume = log_volume(T)
    assert volume.isnan()
    assert torch.autograd.grad(volume, T)[0].isnan().all()


def test_first_and_second_derivatives_match_finite_differences():
    w = torch.randn(2, 4, 4, dtype=torch.double, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for function in (dominant, lambda w: log_volume(dominant(w))):
        assert torch.autograd.gradcheck(function, w)
        assert torch.autograd.gradgradcheck(function, w)


def test_log_volume_supports_torch_func_grad_and_vmap():
    w = torch.randn(3, 4, 4, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    stack = dominant(w)
    assert torch.allclose(torch.func.vmap(log_volume)(stack), log_volume(stack))
    found = torch.func.vmap(torch.func.grad(lambda T: log_volume(T, floor=0)))(stack)
    assert torch.allclose(found, torch.linalg.inv(stack).mT)


@pytest.mark.parametrize("num_classes", [3, 40, 400])
def test_tangent_is_near_the_volume_and_exact_when_renewed(num_classes):
    volume = TangentLogVolume(num_classes)
    assert volume.every == (20 if num_classes == 400 else 10)
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(num_classes, num_classes, generator=generator) - math.log(num_classes)
    exact_steps = []
    for step in range(volume.every + 2):
        T = dominant(w + 0.01 * step).requires_grad_()
        values = volume(T), log_volume(T)
        found, expected = (torch.autograd.grad(value, T)[0] for value in values)
        assert torch.allclose(*values, rtol=1e-2)
        assert torch.nn.functional.cosine_similarity(found.flatten(), expected.flatten(), dim=0) > 0.99
        if torch.equal(found, expected):
            exact_steps.append(step)
            assert torch.allclose(*values, rtol=1e-5)
    assert exact_steps == [0, volume.every]


def test_tangent_is_renewed_after_a_reset():
    volume, T = TangentLogVolume(5), DominantTransition(5)()
    volume(dominant(torch.zeros(5, 5) - 1))
    assert not torch.isclose(volume(T), log_volume(T))
    volume.reset()
    assert torch.isclose(volume(T), log_volume(T))


def test_transition_stays_finite_when_a_gradient_scaler_skips_a_step():
    T = DominantTransition(3)
    optimizer, scaler = Recipe().transition_optimizer_for(T), torch.amp.GradScaler("cpu")
    before = T().detach()
    for factor in (1.0, math.inf, 1.0):
        optimizer.zero_grad()
        scaled: torch.Tensor = scaler.scale(factor * log_volume(T()))
        scaled.backward()
        last = T().detach()
        scaler.step(optimizer)
        scaler.update()
        assert T().isfinite().all()
        assert torch.equal(T(), last) == (factor == math.inf), "only the step with an infinite gradient is skipped"
    assert log_volume(T()) < log_volume(before)


def test_log_volume_of_stacked_and_tall_matrices():
    stack = torch.tensor(np.stack([noise.pair(4, 0.2), noise.symmetric(4, 0.3)]))
    assert torch.allclose(log_volume(stack), torch.stack([log_volume(T) for T in stack]))
    tall = torch.cat([torch.eye(3), torch.zeros(2, 3)])
    assert log_volume(tall).item() == pytest.approx(0, abs=1e-6)


@given(st.integers(2, 8), st.integers(0, 2**31))
@settings(max_examples=20)
def test_applying_T_gives_posteriors_and_agrees_with_per_row_matrices(num_classes, seed):
    generator = np.random.default_rng(seed)
    clean = torch.tensor(generator.dirichlet(np.ones(num_classes), 5))
    T = torch.tensor(noise.asymmetric(num_classes, 0.3, seed))
    noisy = apply_transition(clean, T)
    assert torch.allclose(noisy.sum(1), torch.ones(5, dtype=torch.double))
    assert torch.allclose(noisy, apply_transition(clean, T.expand(5, -1, -1)))


def test_pair_noise_moves_probability_to_the_next_class():
    noisy = apply_transition(torch.eye(4, dtype=torch.double), torch.tensor(noise.pair(4, 0.3)))
    assert noisy[0].tolist() == [0.7, 0.3, 0, 0]


def test_transition_error_closed_forms():
    eye, pair, symmetric = np.eye(10), noise.pair(10, 0.45), noise.symmetric(10, 0.2)
    assert volmin.transition_error(pair, pair) == 0
    assert transition_error(pair, eye) == pytest.approx(0.9)
    assert transition_error(symmetric, eye) == pytest.approx(0.4)
    assert transition_error(pair, pair.T) == pytest.approx(0.9)
    assert transition_error(pair, DominantTransition(10)()) == pytest.approx(0.8889, abs=1e-4)
    with pytest.raises(InputError, match="one shape"):
        transition_error(pair, np.eye(9))


@pytest.mark.parametrize(
    ("T", "message"),
    [
        (np.ones((2, 3)), "square"),
        ([[1.0]], "at least 2 classes"),
        ([[1, np.nan], [0, 1]], "NaN"),
        ([[1.2, 0], [-0.2, 1]], "negative"),
        ([[0.5, 0], [0.2, 1]], "column 0 sums to 0.7"),
        (noise.symmetric(3, 0.2) * [[1], [0.5], [1]], "sum to one"),
        ([[0.9, 0.1], [0.3, 0.7]], "pass T.T"),
    ],
)
def test_invalid_matrices_are_rejected_with_a_reason(T, message):
    with pytest.raises(InputError, match=message):
        validate_transition(T)


def test_only_degenerate_estimates_cause_a_warning():
    warn_if_degenerate(noise.pair(10, 0.45))
    for T in (DOMINANT_BUT_NEGATIVE, noise.pair(4, 0.5), np.full((2, 2), np.nan)):
        with pytest.warns(DegenerateTransitionWarning):
            warn_if_degenerate(T)


def test_invalid_start_values_and_errors_are_rejected():
    with pytest.raises(InputError, match="init within ±100"):
        DominantTransition(3, -1e308)
    with pytest.raises(InputError, match="num_classes must be at least 2"):
        DominantTransition(1, 0.0)
    for num_classes, diagonal in ((1, None), (3, 2.0), (3, 0.0)):
        with pytest.raises(InputError, match="at least 2|dominant diagonal"):
            SoftmaxTransition(num_classes, diagonal)
    for T, T_hat in ((np.zeros((2, 2)), np.eye(2)), (1e308 * np.eye(2), np.eye(2)), (np.zeros((0, 0)),) * 2):
        with pytest.raises(InputError, match="they are probabilities"):
            transition_error(T, T_hat)
    with pytest.raises(InputError, match="T must be a square matrix"):
        warn_if_degenerate(np.zeros((0, 3)))
