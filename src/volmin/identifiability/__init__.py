"""Do the posteriors determine T? The scatter index, its witness, and what can be said without it.

Volume minimisation finds the true T when the clean posteriors are *sufficiently scattered*. On the simplex this
means that their convex hull contains the inscribed ball of the simplex and a little more. The scatter index s is
the radius of the largest ball around the barycentre whose part in the simplex lies inside the hull, in units of
the inscribed ball's:

- s < 1: T is not determined; a smaller matrix than the true one explains the noisy labels as well.
- s = 1: the border. s > 1: the condition holds, with margin. s = C - 1: every class has anchor points.

If the hull is ``{v : max v <= a}``, then ``s = C a - 1``. For two classes only anchor points will do, s = 1.

The hull of *estimated* posteriors is looked at, so a small index refutes T, while a large one never verifies it:
any noisy posteriors are also the clean posteriors of ``T = I``. A softmax never gives the exact zeros that the
condition asks for, so posteriors below a tolerance count as zero, and the index is given for several tolerances.

References: Li et al., "Provably End-to-end Label-noise Learning without Anchor Points" (ICML 2021), for the
condition; Gillis & Luce (arXiv 2402.06019) and Barbarino, Gillis & Saha (arXiv 2511.04291) for checking it.
"""

from __future__ import annotations

from volmin.identifiability.assumptions import Comparison, bracket, common_transition_test, dominance_test
from volmin.identifiability.scattered import TOLERANCES, ClassConditions, Scatter, Verdict, certificate, scatter

__all__ = [
    "TOLERANCES",
    "ClassConditions",
    "Comparison",
    "Scatter",
    "Verdict",
    "bracket",
    "certificate",
    "common_transition_test",
    "dominance_test",
    "scatter",
]
