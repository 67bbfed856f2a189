"""Published closed forms of the pipeline bubble, as exact fractions.

All hold for uniform stages (the same durations everywhere) and free transfers. Two conventions
are in use, and a figure must name its denominator: the ratio is bubble over window, the overhead
is bubble over busy. Each equals the other by ratio = overhead / (1 + overhead).
"""

from fractions import Fraction

_ONE_CHUNK = frozenset({"gpipe", "1f1b", "eager-1f1b"})
_CHUNKED = frozenset({"interleaved-1f1b", "looped-bfs"})
_DEPENDS_ON_DURATIONS = "its bubble depends on the durations of F, I and W, not on p and m alone"
_NO_FORM = {
    "zb-h1": _DEPENDS_ON_DURATIONS,
    "zb-h2": _DEPENDS_ON_DURATIONS,
    "zb-v": _DEPENDS_ON_DURATIONS,
    "interleaved-zb": _DEPENDS_ON_DURATIONS,
    "dualpipe-v": _DEPENDS_ON_DURATIONS,
    "forward-only": "no closed form is published for forwards alone",
    "unknown": "the schedule was not recognised",
}


def theoretical_bubble_overhead(schedule: str, p: int, m: int, v: int = 1) -> Fraction | None:
    """Bubble over busy time, the convention of Megatron-LM and Llama 3.

    1F1B and GPipe: (p-1)/m. Interleaved 1F1B: (p-1)/(v*m). Source: Narayanan et al. 2021,
    sections 2.2.1 and 2.2.2. Looped breadth-first has the interleaved value: Lamy-Poirier 2022.
    Eager 1F1B (twice the warm-up) has the same critical path as 1F1B: held against the replay.

    None where no closed form in p, m and v exists: ``why_no_theory`` then says why. Raises
    ValueError for values below 1.
    """
    if why_no_theory(schedule, p, m, v) is not None:
        return None
    return Fraction(p - 1, v * m)


def theoretical_bubble_ratio(schedule: str, p: int, m: int, v: int = 1) -> Fraction | None:
    """Bubble over the window of the step, first forward to last backward.

    1F1B and GPipe: (p-1)/(m+p-1). Source: Huang et al. 2019 (GPipe), section 2.3. Interleaved
    and looped breadth-first: (p-1)/(v*m+p-1), from the overhead of ``theoretical_bubble_overhead``.

    None where no closed form in p, m and v exists: ``why_no_theory`` then says why. Raises
    ValueError for values below 1.
    """
    if why_no_theory(schedule, p, m, v) is not None:
        return None
    return Fraction(p - 1, v * m + p - 1)


def why_no_theory(schedule: str, p: int, m: int, v: int = 1) -> str | None:
    """Why the two functions above give None, in words; None where they give a value."""
    if min(p, m, v) < 1:
        raise ValueError(f"p, m and v are 1 or more, got p={p}, m={m}, v={v}")
    if schedule in _ONE_CHUNK:
        return None if v == 1 else f"{schedule} has one chunk per stage, not {v}"
    if schedule not in _CHUNKED:
        return _NO_FORM.get(schedule, f"no closed form is known for a schedule named {schedule!r}")
    if schedule == "interleaved-1f1b" and m % p:
        return f"the closed form needs m to be a multiple of p, here m={m}, p={p}"
    if m < p:
        return f"the closed form needs m >= p, here m={m}, p={p}"
    return None
