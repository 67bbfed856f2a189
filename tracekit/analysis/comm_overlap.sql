-- By step, the communication that a step launched is held against all compute of its rank,
-- whichever step launched that: what hides it, hides it.
WITH
_by AS (SELECT list_contains($by, 'step') AS by_step),
-- A cell is a rank, or a step of it, and has a number: rank * 2^32 + step + 1.
_work AS (
    SELECT w.rank, w.class, w.start_ns, w.end_ns,
        (w.rank::BIGINT << 32) + CASE WHEN _by.by_step THEN w.step::BIGINT + 1 ELSE 0 END AS cell
    FROM work AS w, _by
    WHERE w.class IN ('communication', 'compute')
),
_cells AS (
    SELECT r.rank, s.step, (r.rank::BIGINT << 32) + coalesce(s.step::BIGINT + 1, 0) AS cell
    FROM rank AS r
    LEFT JOIN (SELECT rank, step FROM step, _by WHERE _by.by_step) AS s USING (rank)
),
-- Where each cell's communication lies: compute elsewhere cannot hide it.
_extent AS (
    SELECT rank, cell, min(start_ns) AS first_ns, max(end_ns) AS last_ns
    FROM _work, _by WHERE class = 'communication' AND cell IS NOT NULL AND by_step
    GROUP BY rank, cell
),
-- a: communication of the cell; b: compute of its rank; c: compute of the cell.
_layers AS (
    SELECT cell AS key, start_ns, end_ns, (class = 'communication')::INT AS a,
        (class = 'compute')::INT AS b, (class = 'compute')::INT AS c, 0 AS d
    FROM _work WHERE cell IS NOT NULL
    UNION ALL
    -- By step, what the other steps of the rank, or none of them, launched.
    SELECT x.cell, w.start_ns, w.end_ns, 0, 1, 0, 0
    FROM _work AS w JOIN _extent AS x
        ON w.rank = x.rank AND w.start_ns < x.last_ns AND w.end_ns > x.first_ns
    WHERE w.class = 'compute' AND w.cell IS DISTINCT FROM x.cell
),
_times AS (
    SELECT key AS cell,
        coalesce(sum(end_ns - start_ns) FILTER (a > 0), 0)::BIGINT AS comm_ns,
        coalesce(sum(end_ns - start_ns) FILTER (a > 0 AND b = 0), 0)::BIGINT AS exposed_ns,
        coalesce(sum(end_ns - start_ns) FILTER (c > 0), 0)::BIGINT AS compute_ns
    FROM sweep('_layers') GROUP BY key
),
_rows AS (
    SELECT
        CASE WHEN list_contains($by, 'rank') THEN c.rank END AS rank,
        CASE WHEN list_contains($by, 'stage') OR list_contains($by, 'rank')
            THEN p.stage END AS stage,
        c.step,
        -- No evidence: no figure. Evidence without communication: a measured zero.
        CASE WHEN r.evidence <> 'none' THEN coalesce(t.comm_ns, 0) END AS comm_ns,
        CASE WHEN r.evidence <> 'none' THEN coalesce(t.exposed_ns, 0) END AS exposed_ns,
        CASE WHEN r.evidence <> 'none' THEN coalesce(t.compute_ns, 0) END AS compute_ns,
        r.evidence,
        r.device_kind
    FROM _cells AS c
    JOIN rank AS r USING (rank)
    JOIN rank_stage AS p USING (rank)
    LEFT JOIN _times AS t USING (cell)
),
_sums AS (
    SELECT rank, stage, step,
        sum(comm_ns)::BIGINT AS comm_ns,
        sum(exposed_ns)::BIGINT AS exposed_ns,
        sum(compute_ns)::BIGINT AS compute_ns,
        string_agg(DISTINCT evidence, '+' ORDER BY evidence) AS evidence,
        bool_and(device_kind IS NOT NULL) AS device_known,
        -- A group in which some rank has no evidence is no whole figure.
        count(*) FILTER (evidence = 'none') AS blind
    FROM _rows GROUP BY rank, stage, step
)
SELECT
    rank,
    stage,
    step,
    CASE WHEN blind = 0 AND comm_ns > 0 THEN (comm_ns - exposed_ns) / comm_ns END AS overlap,
    CASE WHEN blind = 0 THEN exposed_ns END AS exposed_ns,
    CASE WHEN blind = 0 THEN comm_ns - exposed_ns END AS overlapped_ns,
    CASE WHEN blind = 0 THEN comm_ns END AS comm_ns,
    CASE WHEN blind = 0 THEN compute_ns END AS compute_ns,
    evidence,
    CASE
        WHEN blind > 0 AND device_known THEN 'not available: no timed work in the trace'
        WHEN blind > 0 THEN
            'not available: no GPU work in the trace, and nothing says that the run was on the '
            || 'CPU; if it was, ingest with --device cpu'
        WHEN comm_ns = 0 AND evidence = 'operator' THEN
            'not available: no communication in the background (gloo shows a point-to-point '
            || 'operation from post to wait, which is not its transfer)'
        WHEN comm_ns = 0 THEN 'not available: no communication'
    END AS missing
FROM _sums
ORDER BY rank, stage, step
