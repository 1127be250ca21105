"""VolMinNet: the transition matrix of smallest volume that explains the noisy labels.

The classifier h and T are learned together, in one stage, by minimising

    cross-entropy(T h(x), noisy y) + lam * log |det T|.

If the clean posteriors are sufficiently scattered, the smallest simplex that holds the noisy posteriors has the columns
of T as its corners, so T is found without anchor points.

Reference: Li, Liu, Han, Niu, Sugiyama, "Provably End-to-end Label-Noise Learning without Anchor Points", ICML 2021.

Deviations from the authors' code: the log volume is kept finite for a singular T (``volmin.log_volume``); validation
loss is a mean over examples, not over batches. The authors start w at -2 (C = 10) and -4.5 (C = 100), the paper at
ln(1 / (C - 2)): give ``init`` for the former. ``shared_level`` and ``starts`` are ours; the latter is for heavy pair
noise, where the objective has local optima in which two columns of T describe one class: some starts fall into one and
stay there. Noisy validation loss tells them apart after a few epochs.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn
from torch.optim import Optimizer

from volmin.data.batches import Batch
from volmin.losses import forward_nll
from volmin.methods.base import Method, epochs_of
from volmin.networks import reset_parameters
from volmin.training import Phase, Recipe
from volmin.transition import DominantTransition, log_volume


class VolMinNet(Method):
    """Learns T and the classifier together, keeping the volume of T small.

    Args:
        net: network that gives logits.
        num_classes: C.
        lam: weight of the log volume. Zero leaves it out; above about 0.01 it biases T towards more noise.
        init: start value of the parameters of T; the paper's by default.
        shared_level: let one parameter per class carry its level of noise, which is faster for many classes.
        starts: train from so many random starts for a few epochs, and go on with the one that explains held-out noisy
            labels best. Needs validation data.
        start_share: length of such a start, as a share of the epochs.
    """

    estimates_transition = True

    def __init__(
        self,
        net: nn.Module,
        num_classes: int,
        *,
        lam: float = 1e-4,
        init: float | None = None,
        shared_level: bool = False,
        starts: int = 1,
        start_share: float = 0.05,
    ) -> None:
        super().__init__(net, num_classes)
        if lam < 0:
            raise ValueError(f"lam must be at least 0, but is {lam}: a negative weight would maximise the volume.")
        if starts < 1:
            raise ValueError(f"starts must be at least 1, but is {starts}.")
        self.T = DominantTransition(num_classes, init, shared_level=shared_level)
        self.lam, self.starts, self.start_share = lam, starts, start_share

    def transition(self, x: Tensor | None = None) -> Tensor:
        return self.T()

    def loss(self, batch: Batch, epoch: int) -> Tensor:
        T = self.T()
        return forward_nll(self(batch.x), T, batch.y) + self.lam * log_volume(T)

    def phases(self, recipe: Recipe) -> list[Phase]:
        epochs = epochs_of(self.start_share, recipe)
        starts = [
            Phase(
                f"start {number + 1}", epochs, self.loss, self._optimizers(recipe), prepare=self._draw, rival=number > 0
            )
            for number in range(self.starts if self.starts > 1 else 0)
        ]
        train = Phase("train", recipe.epochs, self.loss, self._optimizers(recipe), recipe.learning_rate_schedule())
        return [*starts, train]

    def _optimizers(self, recipe: Recipe) -> list[Optimizer]:
        return [recipe.network_optimizer(self.net), recipe.transition_optimizer_for(self.T)]

    def _draw(self, batches: Iterable[Batch]) -> None:
        reset_parameters(self.net)
        self.T.reset_parameters()
