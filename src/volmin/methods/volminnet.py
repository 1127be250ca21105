"""VolMinNet: the transition matrix of smallest volume that explains the noisy labels.

The classifier h and T are learned together, in one stage, by minimising

    cross-entropy(T h(x), noisy y) + lam * log |det T|.

If the clean posteriors are sufficiently scattered, the columns of T are the vertices of the smallest simplex that
contains the noisy posteriors, so T is identified without anchor points.

Reference: Li, Liu, Han, Niu, Sugiyama, "Provably End-to-end Label-Noise Learning without Anchor Points", ICML 2021.

With several annotators, each has a T of its own, and the volume is that of their stack (the posteriors are shared, so
the same theorem holds for it) or, as in GeoCrowdNet-F, ``-1/2 log det(H'H)`` of the posteriors H of a batch. The
matrices are shrunk towards a pooled T, and the answers to one item may count as observations of one label (``weight``).
Reference: Ibrahim, Nguyen, Fu, "Deep Learning From Crowdsourced Labels: Coupled Cross-Entropy Minimization,
Identifiability, and Regularization", ICLR 2023.

Deviations from the authors' code: the log volume is kept finite for a singular T (``volmin.log_volume``) and evaluated
on a tangent that is renewed every few steps (``volmin.transition.TangentLogVolume``); the validation loss is a mean
over examples, not over batches. w starts at ln(1 / (C - 2)) as in the paper; the authors' code starts it at -2 (C = 10)
and -4.5 (C = 100), which ``init`` reproduces. ``shared_level``, ``warm_up`` and ``recalibrate`` are additions.
``recalibrate`` corrects T for what the network has memorised (``volmin.estimation.recalibration``). ``warm_up`` is for
heavy pair noise, where some seeds end in local optima in which two columns of T describe one class; starting T at the
smallest simplex around the posteriors of a briefly trained network avoids them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from volmin.crowds import Deviations, annotators_log_probs, answers_nll, posterior_log_volume, stacked
from volmin.data.loaders import Batch
from volmin.estimation import recalibrate
from volmin.exceptions import InputError
from volmin.losses import forward_nll
from volmin.methods.base import Method, collect
from volmin.networks import reset_parameters
from volmin.training import Phase, Recipe
from volmin.transition import DominantTransition, TangentLogVolume


class VolMinNet(Method):
    """Learns T and the classifier together, keeping the volume of T small.

    Args:
        net: Network that gives logits.
        num_classes: Number of classes C.
        lam: Weight of the log volume. Zero leaves it out; above about 0.01 it biases T towards more noise.
        init: Start value of the parameters of T; the paper's by default.
        shared_level: Whether one parameter per class carries its noise level, which is faster with many classes.
        warm_up: Length of plain training as a share of the epochs. T then starts at the minimum-volume estimate from
            its posteriors, and the network is reset. Zero, as in the paper, leaves it out.
        recalibrate: Whether the level and the contrast of T, where the held-out noisy labels reject the trained T, and
            the scale of the logits are fitted to these labels at the end. Predicted classes stay the same.
        annotators: Number of annotators; labels of several are (B, annotators), negative where there is no answer.
        weight: Weight of the other answers to an item beside each answer, from 0 (each answer may mean a label of its
            own) to 1 (all answers are about one clean label).
        shrinkage: Precision of the prior that keeps the T of each of several annotators close to the pooled T.
        volume: Which volume is kept small with several annotators: that of the stacked "matrices" or, by its inverse,
            that of the "posteriors".
    """

    estimates_transition = True
    needs = "noisy labels only, of one or several annotators"
    num_answers: Tensor
    scale: Tensor

    def __init__(
        self,
        net: nn.Module,
        num_classes: int,
        *,
        lam: float = 1e-4,
        init: float | None = None,
        shared_level: bool = False,
        warm_up: float = 0.0,
        recalibrate: bool = False,
        annotators: int = 1,
        weight: float = 0.5,
        shrinkage: float = 4.0,
        volume: Literal["matrices", "posteriors"] = "matrices",
    ) -> None:
        super().__init__(net, num_classes)
        if lam < 0:
            raise InputError(f"lam must be at least 0, but is {lam}: a negative weight would maximise the volume.")
        if not 0 <= warm_up <= 1:
            raise InputError(f"warm_up must be a share between 0 and 1, but is {warm_up}.")
        if annotators > 1 and (warm_up or recalibrate):
            raise InputError("warm_up and recalibrate are for a single T; leave them out with several annotators.")
        if volume not in ("matrices", "posteriors"):
            raise InputError(f'volume must be "matrices" or "posteriors", but is {volume!r}.')
        self.T = DominantTransition(num_classes, init, shared_level=shared_level)
        self.lam, self.warm_up = lam, warm_up
        self.log_volume = TangentLogVolume(num_classes)
        self.annotators, self.weight, self.shrinkage, self.volume = annotators, weight, shrinkage, volume
        self.recalibrate = recalibrate
        if recalibrate:
            self.register_buffer("scale", torch.ones(()))
        if annotators > 1:
            self.deviations = Deviations(num_classes, annotators)
            self.register_buffer("num_answers", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        return self.scale * logits if self.recalibrate else logits

    def transition(self, x: Tensor | None = None) -> Tensor:
        return self.T()

    def transitions(self) -> Tensor:
        return self.T()[None] if self.annotators == 1 else self.deviations(self.T())

    def loss(self, batch: Batch, epoch: int) -> Tensor:
        T = self.T()
        return forward_nll(self(batch.x), T, batch.y) + self.lam * self.log_volume(T)

    def crowd_loss(self, batch: Batch, epoch: int) -> Tensor:
        """The loss with a T for each annotator."""
        T, logits = self.transitions(), self(batch.x)
        spread = self.volume == "posteriors"
        volume = posterior_log_volume(logits.softmax(1)) if spread else self.log_volume(stacked(T))
        prior = self.shrinkage / self.num_answers * self.deviations.penalty()
        return answers_nll(logits, T, batch.y, self.weight) + self.lam * volume + prior

    def noisy_log_probs(self, x: Tensor) -> Tensor:
        if self.annotators == 1:
            return super().noisy_log_probs(x)
        return annotators_log_probs(self(x), self.transitions())

    def train(self, mode: bool = True) -> VolMinNet:
        self.log_volume.reset()  # so that a resumed epoch does not need the tangent of the one before it
        return super().train(mode)

    def phases(self, recipe: Recipe) -> list[Phase]:
        several = self.annotators > 1
        matrices = [self.T, self.deviations] if several else [self.T]

        def optimizers() -> list[Optimizer]:
            return [recipe.network_optimizer(self.net), recipe.transition_optimizer_for(*matrices)]

        loss, prepare = (self.crowd_loss, self.count_answers) if several else (self.loss, None)
        finish = self.fit_to_held_out_labels if self.recalibrate else None
        train = Phase("train", recipe.epochs, loss, optimizers, recipe.learning_rate_schedule(), prepare, finish)
        if self.warm_up == 0:
            return [train]
        warm_up = self.warm_up_phase(recipe, self.warm_up, selection="last")
        return [warm_up, replace(train, prepare=self.start_from_posteriors)]

    def start_from_posteriors(self, batches: Iterable[Batch]) -> None:
        """Start T at the minimum-volume estimate from the warm-up's posteriors, and reset the network."""
        self.T.start_at(self.estimate_from_posteriors(batches, "volume"))
        reset_parameters(self.net)

    def fit_to_held_out_labels(self, batches: Iterable[Batch]) -> None:
        """Adjust the level and the contrast of T, and the scale of the logits, to labels that training did not use."""
        found = recalibrate(self.T(), *collect(batches, lambda x: self(x).softmax(1)))
        if found.rejects:
            self.T.start_at(found.transition, softness=1e-9)
        self.scale *= found.scale

    def count_answers(self, batches: Iterable[Batch]) -> None:
        """Count the answers of the training set, which the prior of the matrices is weighed against."""
        self.num_answers.fill_(max(1, sum(int((batch.y >= 0).sum()) for batch in batches)))
