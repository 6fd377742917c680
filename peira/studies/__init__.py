"""Seeded, falsifiable experiments: what a method claims, what is measured, and the verdict.

A study is a module with a table of arms (settings of the algorithm, as in a recipe), a table of claims and a
function that measures. What it trains is built by `peira.build.algorithm` from those arms: the code under
study is the code that trains. Nothing here imports torch before a study is asked for.
"""

STUDIES = {
    "ustat": "Is the leave-one-out gradient a U-statistic, and is it as good as an oracle baseline?",
    "collapse": "Does repairing collapsed groups (AVSPO) beat GRPO at a tuned learning rate?",
    "gdpo": "Does normalising each reward channel keep small rewards from being drowned?",
    "kl": "What does each divergence, in each place, do to pass@1 and to pass@k?",
    "spurious": "What do random rewards amplify, and what does it take for that to happen?",
    "noise": "When does verifier noise only slow learning, when does it reverse it, and what do "
    "corrections do?",
    "fipo": "Does weighting advantages by the future log-ratio speed up learning?",
    "staleness": "Which importance correction survives rollouts that are many updates old?",
}
"""Name -> its question. The study stands in the module of that name."""
