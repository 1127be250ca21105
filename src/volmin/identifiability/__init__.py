"""Whether posteriors determine T: the scatter index, its witness, and bounds that do not depend on it.

Volume minimisation recovers T if the clean posteriors are *sufficiently scattered*: their convex hull must contain the
inscribed ball of the simplex, and slightly more. The scatter index s is the radius of the largest ball around the
barycentre whose part within the simplex lies inside the hull, in units of the radius of the inscribed ball:

- s < 1: T is not determined; a matrix of smaller volume explains the noisy labels equally well.
- s = 1: the border. s > 1: the condition holds, with a margin. s = C - 1: every class has anchor points.

If the hull is ``{v : max v <= a}``, then ``s = C a - 1``. Two classes require anchor points, s = 1.

The index is computed from *estimated* posteriors, so a small one rejects T, but a large one never proves it: any noisy
posteriors are also clean posteriors for ``T = I``. A softmax never gives the exact zeros that the condition requires,
so posteriors below a tolerance count as zero, and the index is reported for several tolerances.

References: Li et al., "Provably End-to-end Label-noise Learning without Anchor Points" (ICML 2021), for the
condition; Gillis & Luce (arXiv 2402.06019) and Barbarino, Gillis & Saha (arXiv 2511.04291) for checking it.
"""

from __future__ import annotations

from volmin.identifiability.assumptions import Comparison, bracket, common_transition_test, dominance_test
from volmin.identifiability.certification import certificate
from volmin.identifiability.scatter_index import TOLERANCES, ClassConditions, Scatter, Verdict, scatter

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
