-- Memory events happen on the host: they are held against the host's step windows and actions.
WITH
-- The device whose memory counts: the accelerator where its allocator reports, else, for a rank
-- that trains on the CPU, the CPU's. A GPU job's CPU allocations are not its device memory.
_device AS (
    SELECT m.rank, max(m.device_type) AS device_type
    FROM memory_event AS m JOIN rank AS r USING (rank)
    WHERE m.device_type > 0 OR r.device_kind = 'cpu'
    GROUP BY m.rank
),
_state AS (
    SELECT rank,
        sum(bytes) FILTER (moment = 'end' AND category = 'params') AS params,
        sum(bytes) FILTER (moment = 'end' AND category = 'grads') AS grads,
        sum(bytes) FILTER (moment = 'end' AND category = 'optimizer') AS optimizer,
        coalesce(sum(bytes) FILTER (moment = 'end' AND category = 'padding'), 0) AS padding,
        sum(bytes) FILTER (moment = 'start' AND category IN ('params', 'optimizer', 'padding'))
            AS at_start
    FROM model_state GROUP BY rank
),
-- Gradient storage that no event of the window allocated was there before and stayed.
_storage AS (
    SELECT g.*, NOT EXISTS (
        FROM memory_event AS m
        WHERE m.rank = g.rank AND m.address = g.address AND m.bytes > 0
    ) AS persistent
    FROM grad_storage AS g
),
_persistent AS (
    SELECT rank, max(bytes) AS bytes FROM (
        SELECT rank, step, sum(bytes) FILTER (persistent) AS bytes
        FROM _storage GROUP BY rank, step
    ) GROUP BY rank
),
-- On the CPU the allocator's total starts at 0 when recording starts: what was there before is
-- added, as far as it is known (parameters, optimizer state, gradients that keep their storage).
_base AS (
    SELECT d.rank, d.device_type,
        CASE WHEN d.device_type > 0 THEN 0
            ELSE s.at_start + coalesce(p.bytes, 0) END AS bytes
    FROM _device AS d LEFT JOIN _state AS s USING (rank) LEFT JOIN _persistent AS p USING (rank)
),
_windows AS (
    SELECT rank, step, host_start_ns AS start_ns, host_end_ns AS end_ns FROM step
    UNION ALL
    SELECT m.rank, NULL, min(m.ts_ns), max(m.ts_ns) + 1
    FROM memory_event AS m ANTI JOIN step AS s ON s.rank = m.rank GROUP BY m.rank
),
_samples AS (
    SELECT m.rank, w.step, m.ts_ns, m.ordinal,
        m.total_allocated + b.bytes AS allocated,
        nullif(m.total_reserved, 0) AS reserved
    FROM memory_event AS m
    JOIN _base AS b USING (rank, device_type)
    -- What lies in no step's window still counts for the rank: its step is null.
    LEFT JOIN _windows AS w ON w.rank = m.rank AND m.ts_ns >= w.start_ns AND m.ts_ns < w.end_ns
),
_peaks AS (
    SELECT rank, step,
        max(allocated)::BIGINT AS peak,
        max(reserved)::BIGINT AS reserved,
        min_by(ts_ns, (-allocated, ts_ns, ordinal)) AS peak_ns,
        max_by(allocated, (ts_ns, ordinal))::BIGINT AS last_allocated
    FROM _samples GROUP BY rank, step
),
-- A gradient is alive from the last allocation of its storage within the step.
_grads AS (
    SELECT g.rank, g.step, g.bytes, g.persistent, max(m.ts_ns) AS since_ns
    FROM _storage AS g
    JOIN _windows AS w ON w.rank = g.rank AND w.step = g.step
    LEFT JOIN memory_event AS m ON m.rank = g.rank AND m.address = g.address AND m.bytes > 0
        AND m.ts_ns >= w.start_ns AND m.ts_ns < w.end_ns
    GROUP BY g.rank, g.step, g.address, g.bytes, g.persistent
),
_grads_alive AS (
    SELECT p.rank, p.step,
        sum(g.bytes) FILTER (g.persistent OR g.since_ns <= p.peak_ns)::BIGINT AS bytes
    FROM _peaks AS p JOIN _grads AS g ON g.rank = p.rank AND g.step = p.step
    GROUP BY p.rank, p.step
),
_gathered AS (
    SELECT p.rank, p.step, max_by(s.live_bytes, s.ts_ns) FILTER (s.ts_ns <= p.peak_ns) AS at_peak
    FROM _peaks AS p JOIN state_change AS s ON s.rank = p.rank AND s.category = 'gathered'
    GROUP BY p.rank, p.step
),
_gathered_max AS (
    SELECT w.rank, w.step, max(s.live_bytes) AS bytes
    FROM _windows AS w JOIN state_change AS s
        ON s.rank = w.rank AND s.ts_ns >= w.start_ns AND s.ts_ns < w.end_ns
    WHERE s.category = 'gathered' GROUP BY w.rank, w.step
),
_in_flight AS (
    SELECT p.rank, p.step,
        count(*) FILTER (a.kind = 'F' AND a.host_start_ns <= p.peak_ns)
            - count(*) FILTER (a.kind IN ('B', 'I') AND a.host_end_ns <= p.peak_ns) AS in_flight,
        max_by(a.kind || ' mb ' || a.microbatch, a.host_start_ns)
            FILTER (a.host_start_ns <= p.peak_ns AND a.host_end_ns > p.peak_ns) AS peak_in
    FROM _peaks AS p JOIN action AS a ON a.rank = p.rank AND a.step = p.step
    GROUP BY p.rank, p.step
),
-- One row per rank and step.
_cells AS (
    SELECT p.*, s.params, s.grads, s.optimizer, s.padding, r.evidence,
        CASE WHEN s.params IS NOT NULL THEN coalesce(g.bytes, 0) END AS grads_alive,
        CASE WHEN s.params IS NOT NULL THEN coalesce(f.at_peak, 0) END AS gathered,
        coalesce(fm.bytes, 0) AS gathered_peak,
        i.in_flight, i.peak_in, r.device_bytes - p.reserved AS headroom,
        CASE WHEN p.step IS NOT NULL THEN
            p.last_allocated - lag(p.last_allocated) OVER (
                PARTITION BY p.rank, p.step IS NULL ORDER BY p.step
            ) END AS growth,
        max(p.peak) OVER (PARTITION BY p.rank) AS rank_peak
    FROM _peaks AS p
    JOIN rank AS r USING (rank)
    LEFT JOIN _state AS s USING (rank)
    LEFT JOIN _grads_alive AS g ON g.rank = p.rank AND g.step = p.step
    LEFT JOIN _gathered AS f ON f.rank = p.rank AND f.step = p.step
    LEFT JOIN _gathered_max AS fm ON fm.rank = p.rank AND fm.step = p.step
    LEFT JOIN _in_flight AS i ON i.rank = p.rank AND i.step = p.step
    WHERE p.peak IS NOT NULL
),
_grouped AS (
    SELECT
        CASE WHEN list_contains($by, 'rank') THEN r.rank END AS rank,
        CASE WHEN list_contains($by, 'stage') OR list_contains($by, 'rank')
            THEN t.stage END AS stage,
        CASE WHEN list_contains($by, 'step') THEN c.step END AS step,
        -- The row of a group is the rank and step of its highest peak, the earliest of equals.
        min_by(c, (-c.peak, c.peak_ns)) FILTER (c.peak IS NOT NULL) AS top,
        max(c.gathered_peak)::BIGINT AS gathered_peak,
        avg(c.growth) AS growth,
        -- Of the ranks, not of their steps.
        CASE WHEN list_contains($by, 'step') THEN max(c.peak) - min(c.peak)
            ELSE max(c.rank_peak) - min(c.rank_peak) END AS spread,
        any_value(d.device_type) AS device_type,
        -- Model state is known without memory events too.
        max(s.params) AS params, max(s.grads) AS grads, max(s.optimizer) AS optimizer,
        max(s.padding) AS padding
    FROM rank AS r
    JOIN rank_stage AS t USING (rank)
    LEFT JOIN _cells AS c ON c.rank = r.rank AND (
        c.step IS NOT NULL OR NOT list_contains($by, 'step')
        OR r.rank NOT IN (SELECT rank FROM step)
    )
    LEFT JOIN _device AS d ON d.rank = r.rank
    LEFT JOIN _state AS s ON s.rank = r.rank
    GROUP BY ALL
)
SELECT rank, stage, step,
    top.peak AS peak_allocated_bytes,
    top.reserved AS peak_reserved_bytes,
    coalesce(top.params, params)::BIGINT AS params_bytes,
    coalesce(top.grads, grads)::BIGINT AS grads_bytes,
    coalesce(top.optimizer, optimizer)::BIGINT AS optimizer_bytes,
    CASE WHEN params IS NOT NULL THEN coalesce(top.padding, padding) END::BIGINT AS padding_bytes,
    top.grads_alive::BIGINT AS grads_at_peak_bytes,
    top.gathered::BIGINT AS gathered_at_peak_bytes,
    CASE WHEN top.params IS NOT NULL THEN gathered_peak END AS gathered_peak_bytes,
    (top.peak - top.params - top.grads_alive - top.optimizer - top.padding
        - top.gathered)::BIGINT
        AS activations_bytes,
    top.headroom::BIGINT AS headroom_bytes,
    top.step AS peak_step,
    top.peak_in,
    top.in_flight,
    round(growth)::BIGINT AS growth_bytes,
    CASE WHEN rank IS NULL THEN spread END::BIGINT AS spread_bytes,
    CASE
        WHEN top IS NULL AND device_type IS NULL THEN
            'peak not available: no memory events (profile with profile_memory=True)'
        WHEN top IS NULL THEN
            'peak not available: on the CPU the totals start at 0 when recording starts, and no '
            || 'model state was recorded to add'
        WHEN top.params IS NULL THEN 'model state and activations not available: not recorded'
        WHEN device_type = 0 AND growth > 0 THEN
            'estimated: recorded model state + what was allocated since; the growth may be frees '
            || 'on threads that are not profiled'
        WHEN device_type = 0 THEN
            'estimated: recorded model state + what was allocated since'
    END AS missing
FROM _grouped
ORDER BY rank, stage, step
