-- The main thread of a rank is the one that carries its step marks, else its busiest one.
UPDATE thread SET is_main = true
FROM (
    SELECT e.rank, e.thread_id
    FROM event AS e JOIN name AS n USING (name_id)
    WHERE e.cat IN ('annotation', 'cpu_op')
    GROUP BY e.rank, e.thread_id
    QUALIFY row_number() OVER (
        PARTITION BY e.rank
        ORDER BY count(*) FILTER (starts_with(n.name, 'ProfilerStep#')) DESC,
            count(*) DESC, e.thread_id
    ) = 1
) AS busiest
WHERE thread.rank = busiest.rank AND thread.thread_id = busiest.thread_id;

-- Step marks. A step marked twice on a rank (two threads, two captures) is the first of them.
CREATE TEMP TABLE _mark AS
    SELECT e.rank,
        TRY_CAST(substr(n.name, 14) AS INTEGER) AS step,
        min(e.ts_ns) AS host_start_ns,
        min_by(e.ts_ns + e.dur_ns, (e.ts_ns, -e.dur_ns)) AS mark_end_ns,
        count(*) FILTER (e.cat = 'annotation') AS marks
    FROM event AS e JOIN name AS n USING (name_id)
    WHERE e.cat IN ('annotation', 'cpu_op') AND starts_with(n.name, 'ProfilerStep#')
    GROUP BY ALL HAVING step IS NOT NULL;

CREATE TEMP TABLE _host_step AS
    -- A step ends where the next begins; before a gap in the numbers, where its own mark ends.
    SELECT rank, step, host_start_ns,
        CASE WHEN lead(step) OVER w = step + 1 THEN lead(host_start_ns) OVER w
            ELSE least(mark_end_ns, coalesce(lead(host_start_ns) OVER w, mark_end_ns))
        END AS host_end_ns
    FROM _mark
    WINDOW w AS (PARTITION BY rank ORDER BY host_start_ns, step);

INSERT INTO damage
    SELECT NULL, rank, 'step marked twice', NULL, sum(marks - 1)::BIGINT,
        'only the first mark counts: step ' || min(step)
        || CASE WHEN count(*) > 1 THEN ' and others' ELSE '' END
    FROM _mark WHERE marks > 1 GROUP BY rank;

-- The launch of each piece of GPU work: the runtime call of the same correlation id, else the
-- runtime call or operator of the same External id. Ids are unique within one rank's process
-- only, so nothing is ever joined across ranks. A graph launch owns many kernels; where several
-- calls claim one id the first is taken, so that no work is counted twice.
CREATE TEMP TABLE _gpu AS
    SELECT rank, event_id, cat, name_id, ts_ns, dur_ns, device, stream, correlation, external_id
    FROM event WHERE cat IN ('kernel', 'gpu_memcpy', 'gpu_memset');

CREATE TEMP TABLE _link AS
    WITH _by_correlation AS (
        SELECT rank, correlation, min_by(event_id, (ts_ns, event_id)) AS launch_id,
            min(ts_ns) AS launch_ns
        FROM event WHERE cat = 'runtime' AND correlation IS NOT NULL
        GROUP BY rank, correlation
    ),
    _by_external AS (
        SELECT rank, external_id, min_by(event_id, (cat <> 'runtime', ts_ns, event_id))
            AS launch_id, min_by(ts_ns, (cat <> 'runtime', ts_ns, event_id)) AS launch_ns
        FROM event WHERE cat IN ('runtime', 'cpu_op') AND external_id IS NOT NULL
        GROUP BY rank, external_id
    )
    SELECT g.rank, g.event_id,
        coalesce(c.launch_id, x.launch_id) AS launch_id,
        coalesce(c.launch_ns, x.launch_ns) AS launch_ns
    FROM _gpu AS g
    LEFT JOIN _by_correlation AS c
        ON g.rank = c.rank AND g.correlation = c.correlation
    LEFT JOIN _by_external AS x
        ON c.launch_id IS NULL AND g.rank = x.rank AND g.external_id = x.external_id;
