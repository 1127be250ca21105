"""DMI: maximise the determinant of the joint distribution of predicted class and noisy label.

With U[i, k] = P(noisy i, predicted k), noise multiplies the clean joint matrix by T, so

    -log |det U_noisy| = -log |det U_clean| - log |det T|:

the noise adds a constant, and neither T nor anchor points are needed. Permuting the predicted classes does not change
the loss, so plain training comes first.

Reference: Xu, Cao, Kong, Wang, "L_DMI: A Novel Information-theoretic Loss Function for Training Deep Nets Robust to
Label Noise", NeurIPS 2019.

Deviations from the authors' code: the determinant is that of frequencies, in the log domain, and stays finite when
classes are absent from a batch (``volmin.losses.dmi_loss``), where theirs has no gradient; the optimiser keeps its
momentum between epochs; all validation data selects the epoch. The gradient has the same scale, so the published
learning rate applies. With 100 classes, use batches of 1,000.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from volmin.data.loaders import Batch
from volmin.losses import dmi_loss, joint_matrix
from volmin.methods.base import Method, epochs_of
from volmin.training import Phase, Recipe


class DMI(Method):
    """Maximises, after plain training, the determinant of the joint matrix of predicted class and noisy label.

    Args:
        net: Network that gives logits.
        num_classes: Number of classes C.
        dmi: Length of the training by the determinant, as a share of the epochs.
        dmi_lr: Its learning rate. The authors' suits thousands of steps; fewer steps require a larger one.
    """

    recipe_changes: ClassVar[Mapping[str, Any]] = {"epochs": 120, "milestones": (40, 80), "selection": "accuracy"}

    def __init__(self, net: nn.Module, num_classes: int, *, dmi: float = 0.83, dmi_lr: float = 1e-6) -> None:
        super().__init__(net, num_classes)
        self.dmi, self.dmi_lr = dmi, dmi_lr

    def loss(self, batch: Batch, epoch: int) -> Tensor:
        return dmi_loss(_mean_over_devices(joint_matrix(self(batch.x).float(), batch.y)))

    def phases(self, recipe: Recipe) -> list[Phase]:
        def optimizers() -> list[Optimizer]:
            return [recipe.network_optimizer(self.net, lr=self.dmi_lr)]

        return [self.warm_up_phase(recipe, 1.0), Phase("dmi", epochs_of(self.dmi, recipe), self.loss, optimizers)]


def _mean_over_devices(joint: Tensor) -> Tensor:
    """The joint matrix over all devices, whose determinant is not a mean of the devices' determinants."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return joint
    total = joint.detach().clone()
    distributed.all_reduce(total)
    # The value is the mean, the gradient that of this device: data-parallel training averages the gradients.
    return joint + (total / distributed.get_world_size() - joint.detach())
