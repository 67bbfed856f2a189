WITH
-- A rank without step marks is one step, -1 until the end.
_actions AS (
    SELECT a.pipeline, a.stage, a.rank, coalesce(a.step, -1) AS step, a.kind, a.microbatch,
        a.start_ns - c.offset_ns AS start_ns, a.end_ns - c.offset_ns AS end_ns
    FROM action AS a JOIN clock AS c USING (rank)
    WHERE a.start_ns IS NOT NULL
        AND (a.step IS NOT NULL OR a.rank NOT IN (SELECT rank FROM step))
),
_windows AS (
    SELECT pipeline, step, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
        count(DISTINCT microbatch) AS microbatches
    FROM _actions GROUP BY pipeline, step
),
-- One row per rank and step that took part.
_cells AS (
    SELECT a.pipeline, a.stage, a.rank, a.step,
        any_value(w.start_ns) AS window_start_ns, any_value(w.end_ns) AS window_end_ns,
        any_value(w.microbatches) AS microbatches,
        min(a.start_ns) FILTER (a.kind IN ('B', 'I')) AS first_backward_ns,
        max(a.end_ns) FILTER (a.kind = 'F') AS last_forward_ns
    FROM _actions AS a JOIN _windows AS w USING (pipeline, step)
    GROUP BY a.pipeline, a.stage, a.rank, a.step
),
-- The work of a rank that lies in the window, on the aligned clock. a: compute of actions (on the
-- CPU, where an action is its own evidence, the action itself), b: transfers, c: collectives
-- inside actions, d: the window.
_work AS (
    SELECT w.rank, w.start_ns - k.offset_ns AS start_ns, w.end_ns - k.offset_ns AS end_ns,
        (w.class = 'compute')::INT AS a, 0 AS b, (w.class = 'communication')::INT AS c
    FROM work AS w JOIN clock AS k USING (rank) JOIN rank AS r USING (rank)
    WHERE w.in_action AND r.evidence = 'kernel'
        AND (w.class = 'compute'
            OR (w.class = 'communication' AND w.dim NOT IN ('dp', 'pp')
                AND w.operation NOT IN ('send', 'recv', 'send_recv')))
    UNION ALL
    SELECT a.rank, a.start_ns, a.end_ns, 1, 0, 0
    FROM _actions AS a JOIN rank AS r USING (rank) WHERE r.evidence = 'operator'
    UNION ALL
    SELECT end_rank.rank,
        greatest(t.send_start_ns - s.offset_ns, t.recv_start_ns - d.offset_ns),
        t.recv_end_ns - d.offset_ns, 0, 1, 0
    FROM transfer AS t
    JOIN clock AS s ON s.rank = t.src_rank
    JOIN clock AS d ON d.rank = t.dst_rank
    CROSS JOIN LATERAL (VALUES (t.src_rank), (t.dst_rank)) AS end_rank(rank)
),
_layers AS (
    SELECT (c.rank, c.step) AS key,
        greatest(w.start_ns, c.window_start_ns) AS start_ns,
        least(w.end_ns, c.window_end_ns) AS end_ns, w.a, w.b, w.c, 0 AS d
    FROM _cells AS c JOIN _work AS w
        ON w.rank = c.rank AND w.start_ns < c.window_end_ns AND w.end_ns > c.window_start_ns
    UNION ALL
    SELECT (rank, step), window_start_ns, window_end_ns, 0, 0, 0, 1 FROM _cells
    UNION ALL
    -- Cuts where a position in the schedule begins, so that no gap spans two of them.
    SELECT (rank, step), window_start_ns, first_backward_ns, 0, 0, 0, 1 FROM _cells
    UNION ALL
    SELECT (rank, step), window_start_ns, last_forward_ns, 0, 0, 0, 1 FROM _cells
),
_segments AS (
    SELECT s.key[1] AS rank, s.key[2] AS step, s.start_ns, s.end_ns - s.start_ns AS length,
        CASE
            WHEN s.a > 0 THEN 'busy' WHEN s.b > 0 THEN 'transfer' WHEN s.c > 0 THEN 'other'
            ELSE 'bubble'
        END AS class
    FROM sweep('_layers') AS s
),
_cell_sums AS (
    SELECT c.pipeline, c.stage, c.rank, c.step, c.microbatches,
        sum(s.length)::BIGINT AS window_ns,
        coalesce(sum(s.length) FILTER (class = 'busy'), 0)::BIGINT AS busy_ns,
        coalesce(sum(s.length) FILTER (class = 'transfer'), 0)::BIGINT AS transfer_ns,
        coalesce(sum(s.length) FILTER (class = 'other'), 0)::BIGINT AS other_comm_ns,
        coalesce(sum(s.length) FILTER (class = 'bubble'), 0)::BIGINT AS bubble_ns,
        coalesce(sum(s.length) FILTER (class = 'bubble'
            AND s.start_ns < c.first_backward_ns AND s.start_ns < c.last_forward_ns), 0)::BIGINT
            AS warmup_ns,
        coalesce(sum(s.length) FILTER (class = 'bubble'
            AND s.start_ns >= c.first_backward_ns AND s.start_ns >= c.last_forward_ns), 0)::BIGINT
            AS cooldown_ns
    FROM _cells AS c JOIN _segments AS s USING (rank, step)
    GROUP BY ALL
),
-- Whether all point-to-point work of a rank was matched with its other end.
_point_to_point AS (
    SELECT w.rank, count(*) = count(t.rank) AS whole
    FROM work AS w
    LEFT JOIN (
        SELECT src_rank AS rank, send_event AS event_id FROM transfer
        UNION ALL SELECT dst_rank, recv_event FROM transfer
    ) AS t ON t.rank = w.rank AND t.event_id = w.event_id
    WHERE w.operation IN ('send', 'recv', 'send_recv')
    GROUP BY w.rank
),
_rows AS (
    SELECT
        CASE WHEN list_contains($by, 'pipeline') OR list_contains($by, 'rank')
            THEN m.pipeline END AS pipeline,
        CASE WHEN list_contains($by, 'stage') OR list_contains($by, 'rank')
            THEN m.stage END AS stage,
        CASE WHEN list_contains($by, 'rank') THEN m.rank END AS rank,
        CASE WHEN list_contains($by, 'step') THEN nullif(m.step, -1) END AS step,
        m.step AS one_step, r.evidence = 'kernel' AS on_device,
        -- One clock that is not aligned moves the window of all.
        bool_and(k.aligned) OVER (PARTITION BY m.pipeline, m.step) AS aligned,
        p.whole AS transfers_known,
        m.* EXCLUDE (pipeline, stage, rank, step)
    FROM _cell_sums AS m
    JOIN rank AS r USING (rank)
    JOIN clock AS k USING (rank)
    LEFT JOIN _point_to_point AS p USING (rank)
)
SELECT pipeline, stage, rank, step,
    sum(bubble_ns) / sum(window_ns) AS bubble_ratio,
    NULL AS theoretical_ratio,
    sum(bubble_ns) / nullif(sum(busy_ns), 0) AS bubble_overhead,
    NULL AS schedule,
    CASE WHEN min(microbatches) = max(microbatches) THEN min(microbatches) END AS microbatches,
    count(DISTINCT one_step) AS steps,
    (sum(window_ns) // count(*))::BIGINT AS window_ns,
    (sum(busy_ns) // count(*))::BIGINT AS busy_ns,
    -- Without matched ends the wait cannot be told from the transfer: all of it is bubble.
    CASE WHEN bool_and(coalesce(transfers_known, false)) THEN (sum(transfer_ns) // count(*))::BIGINT END
        AS transfer_ns,
    CASE WHEN bool_and(on_device) THEN (sum(other_comm_ns) // count(*))::BIGINT END
        AS other_comm_ns,
    (sum(bubble_ns) // count(*))::BIGINT AS bubble_ns,
    (sum(warmup_ns) // count(*))::BIGINT AS warmup_ns,
    (sum(bubble_ns - warmup_ns - cooldown_ns) // count(*))::BIGINT AS steady_ns,
    (sum(cooldown_ns) // count(*))::BIGINT AS cooldown_ns,
    CASE
        WHEN NOT bool_and(aligned) THEN
            'estimated: the clocks of the hosts are not aligned (see coverage)'
        WHEN count(DISTINCT on_device) > 1 THEN
            'estimated: some ranks are measured by kernels, others by operators'
        WHEN bool_or(one_step = -1) THEN 'no step marks in the trace: one window over all actions'
    END AS missing
FROM _rows
GROUP BY pipeline, stage, rank, step
ORDER BY pipeline, stage, rank, step
