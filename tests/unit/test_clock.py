"""Clock alignment from the ends of collectives."""

from __future__ import annotations

from tracekit.ingest.clock import MIN_SAMPLES, estimate

TWO_HOSTS = {0: "a", 1: "a", 2: "b"}


def ends(offset: int, noise: list[int]) -> list[tuple[str, str, int, int, int]]:
    return [
        ("g", "all_reduce", k, rank, 1000 * k + (offset + noise[k] if rank == 2 else 0))
        for k in range(len(noise))
        for rank in TWO_HOSTS
    ]


def test_the_median_is_the_offset_and_one_outlier_does_not_move_it() -> None:
    found = estimate(TWO_HOSTS, ends(5000, [-2, -1, 0, 1, 2, 9_999_999, 0]))["b"]
    # Deviations from 5000: 2 1 0 1 2 9999999 0 -> median 1.
    assert (found.offset_ns, found.spread_ns, found.samples) == (5000, 1, 7)
    assert found.aligned


def test_noise_alone_is_no_offset() -> None:
    found = estimate(TWO_HOSTS, ends(0, [-300, -100, 50, 200, 400]))["b"]
    assert (found.offset_ns, found.aligned) == (0, True)


def test_too_few_samples_are_not_aligned() -> None:
    found = estimate(TWO_HOSTS, ends(5000, [0] * (MIN_SAMPLES - 1)))["b"]
    assert (found.aligned, found.spread_ns, found.samples) == (False, None, MIN_SAMPLES - 1)


def test_a_rank_that_ran_fewer_is_not_matched() -> None:
    samples = ends(5000, [0] * 9)[:-1]  # rank 2 misses the last: which one is the k-th?
    assert not estimate(TWO_HOSTS, samples)["b"].aligned


def test_the_reference_is_the_host_of_the_lowest_rank() -> None:
    found = estimate(TWO_HOSTS, [])
    assert (found["a"].offset_ns, found["a"].aligned) == (0, True)


def test_sequence_numbers_match_what_counting_would_not() -> None:
    # Rank 2 missed the first and saw one more at the end: sequence 1 to 6 against 2 to 7.
    period = 1_000_000
    ends = [("seq:g", "all_reduce", k, 0, period * k) for k in range(1, 7)]
    ends += [("seq:g", "all_reduce", k, 2, period * k) for k in range(2, 8)]
    found = estimate({0: "a", 2: "b"}, ends)["b"]
    assert (found.offset_ns, found.samples, found.aligned) == (0, 5, True)
