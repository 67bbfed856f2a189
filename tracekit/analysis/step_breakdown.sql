WITH
-- A rank without step marks is one window over all its work. Windows of a rank are disjoint.
_windows AS (
    SELECT *, row_number() OVER (PARTITION BY rank ORDER BY start_ns, end_ns) AS number
    FROM (
        SELECT rank, step, start_ns, end_ns FROM step WHERE end_ns > start_ns
        UNION ALL
        SELECT w.rank, NULL, min(w.start_ns), max(w.end_ns)
        FROM work AS w ANTI JOIN step AS s ON s.rank = w.rank
        GROUP BY w.rank
    )
),
-- Work whose launch the trace does not hold was launched before the capture: it is of no step.
-- Where nothing is linked the trace holds no launches, and all work is of the window it runs in.
_linked AS (SELECT DISTINCT rank FROM work WHERE launch_id IS NOT NULL AND step IS NOT NULL),
_work AS (
    SELECT w.*, l.rank IS NOT NULL AND w.launch_id IS NULL AS is_unlinked
    FROM work AS w LEFT JOIN _linked AS l USING (rank)
),
-- a: compute, b: communication (one bit per dimension in the sums below), c: memory and, above
-- it, unlinked work, d: the number of the window.
_dims(dim, place) AS (
    VALUES ('tp', 0), ('cp', 1), ('ep', 2), ('pp', 3), ('dp', 4), ('unknown', 5)
),
-- The place of a dimension is a digit of base 2^10, so that one layer counts all of them apart.
_layers AS (
    SELECT w.rank AS key, w.start_ns, w.end_ns,
        (w.class = 'compute' AND NOT w.is_unlinked)::BIGINT AS a,
        CASE WHEN w.class = 'communication' AND NOT w.is_unlinked
            THEN 1::BIGINT << (10 * coalesce(d.place, 5)) ELSE 0 END AS b,
        CASE WHEN w.is_unlinked THEN 1::BIGINT << 32 ELSE (w.class = 'memory')::BIGINT END AS c,
        0::BIGINT AS d
    FROM _work AS w LEFT JOIN _dims AS d ON d.dim = w.dim
    UNION ALL
    SELECT rank, start_ns, end_ns, 0, 0, 0, number FROM _windows
),
_cut AS (
    SELECT s.key AS rank, s.start_ns, s.end_ns, s.a, s.b, s.c, w.step, w.start_ns AS window_ns
    FROM sweep('_layers') AS s JOIN _windows AS w ON w.rank = s.key AND w.number = s.d
),
_split AS (
    SELECT rank, step, window_ns, end_ns - start_ns AS length,
        CASE
            WHEN a > 0 THEN 'compute'
            WHEN b > 0 THEN CASE
                WHEN b % (1::BIGINT << 10) > 0 THEN 'tp'
                WHEN (b >> 10) % 1024 > 0 THEN 'cp'
                WHEN (b >> 20) % 1024 > 0 THEN 'ep'
                WHEN (b >> 30) % 1024 > 0 THEN 'pp'
                WHEN (b >> 40) % 1024 > 0 THEN 'dp'
                ELSE 'unknown'
            END
            WHEN c % (1::BIGINT << 32) > 0 THEN 'memory'
            WHEN c > 0 THEN 'unlinked'
            ELSE 'idle'
        END AS class
    FROM _cut
),
_sums AS (
    SELECT rank, step, window_ns AS window_start_ns,
        sum(length)::BIGINT AS window_ns,
        coalesce(sum(length) FILTER (class = 'compute'), 0)::BIGINT AS compute_ns,
        coalesce(sum(length) FILTER (class = 'memory'), 0)::BIGINT AS exposed_memory_ns,
        coalesce(sum(length) FILTER (class = 'unlinked'), 0)::BIGINT AS unlinked_ns,
        coalesce(sum(length) FILTER (class = 'tp'), 0)::BIGINT AS tp,
        coalesce(sum(length) FILTER (class = 'cp'), 0)::BIGINT AS cp,
        coalesce(sum(length) FILTER (class = 'ep'), 0)::BIGINT AS ep,
        coalesce(sum(length) FILTER (class = 'pp'), 0)::BIGINT AS pp,
        coalesce(sum(length) FILTER (class = 'dp'), 0)::BIGINT AS dp,
        coalesce(sum(length) FILTER (class = 'unknown'), 0)::BIGINT AS unknown
    FROM _split GROUP BY ALL
),
_left_out AS (
    SELECT rank, step, string_agg(DISTINCT kind, ', ' ORDER BY kind) AS kinds
    FROM quarantine GROUP BY rank, step
),
_rows AS (
    SELECT
        CASE WHEN list_contains($by, 'rank') THEN r.rank END AS rank,
        CASE WHEN list_contains($by, 'stage') OR list_contains($by, 'rank')
            THEN p.stage END AS stage,
        CASE WHEN list_contains($by, 'step') THEN s.step END AS step,
        r.evidence,
        s.* EXCLUDE (rank, step),
        q.kinds AS left_out
    FROM rank AS r
    JOIN rank_stage AS p USING (rank)
    LEFT JOIN _sums AS s ON s.rank = r.rank AND r.evidence <> 'none'
    LEFT JOIN _left_out AS q ON q.rank = s.rank AND q.step = s.step
),
-- Means are rounded so that the parts still sum to the window: idle is the rest.
_means AS (
    SELECT rank, stage, step,
        count(window_ns) AS windows,
        count(*) FILTER (evidence = 'none') AS blind,
        bool_or(window_ns IS NOT NULL AND step IS NULL AND list_contains($by, 'step')) AS stepless,
        (sum(window_ns) // count(window_ns))::BIGINT AS window_ns,
        (sum(compute_ns) // count(window_ns))::BIGINT AS compute_ns,
        (sum(exposed_memory_ns) // count(window_ns))::BIGINT AS exposed_memory_ns,
        (sum(unlinked_ns) // count(window_ns))::BIGINT AS unlinked_ns,
        (sum(tp) // count(window_ns))::BIGINT AS exposed_tp_ns,
        (sum(cp) // count(window_ns))::BIGINT AS exposed_cp_ns,
        (sum(ep) // count(window_ns))::BIGINT AS exposed_ep_ns,
        (sum(pp) // count(window_ns))::BIGINT AS exposed_pp_ns,
        (sum(dp) // count(window_ns))::BIGINT AS exposed_dp_ns,
        (sum(unknown) // count(window_ns))::BIGINT AS exposed_unknown_ns,
        max(left_out) AS left_out
    FROM _rows GROUP BY rank, stage, step
)
SELECT rank, stage, step, windows, window_ns, compute_ns,
    exposed_tp_ns + exposed_cp_ns + exposed_ep_ns + exposed_pp_ns + exposed_dp_ns
        + exposed_unknown_ns AS exposed_ns,
    exposed_memory_ns,
    unlinked_ns,
    window_ns - compute_ns - exposed_ns - exposed_memory_ns - unlinked_ns AS idle_ns,
    compute_ns / nullif(window_ns, 0) AS compute_ratio,
    exposed_ns / nullif(window_ns, 0) AS exposed_ratio,
    idle_ns / nullif(window_ns, 0) AS idle_ratio,
    exposed_tp_ns, exposed_cp_ns, exposed_ep_ns, exposed_pp_ns, exposed_dp_ns,
    exposed_unknown_ns,
    CASE
        WHEN windows = 0 THEN 'not available: no timed work in the trace'
        WHEN blind > 0 THEN 'only in part: some ranks of this group have no timed work'
        WHEN left_out IS NOT NULL THEN 'work of this group is left out: ' || left_out
        WHEN stepless THEN 'no step marks in the trace: one window over all its work'
    END AS missing
FROM _means
ORDER BY rank, stage, step
