-- Only where EXISTS (FROM rank WHERE evidence = 'operator')
-- What ran on the threads of a rank that is known to train on the CPU. Communication is what the
-- backend executes on its own threads. On the main thread gloo shows a point-to-point operation
-- from post to wait: no transfer, so it is left out, and the wait shows as idle.
INSERT INTO work BY NAME
    SELECT e.rank, e.event_id, 'communication' AS class,
        e.ts_ns AS start_ns, e.ts_ns + e.dur_ns AS end_ns,
        h.step,
        coalesce(
            (SELECT any_value(p.dim) FROM process_group AS p WHERE p.rank = e.rank
             HAVING count(*) = count(p.dim) AND count(DISTINCT p.dim) = 1),
            'unknown'
        ) AS dim,
        _operation_of(n.name) AS operation
    FROM event AS e
    JOIN rank AS r ON r.rank = e.rank AND r.evidence = 'operator'
    JOIN name AS n USING (name_id)
    JOIN thread AS t ON t.rank = e.rank AND t.thread_id = e.thread_id AND NOT t.is_main
    LEFT JOIN _host_step AS h ON h.rank = e.rank
        AND e.ts_ns >= h.host_start_ns AND e.ts_ns < h.host_end_ns
    ANTI JOIN quarantine AS q ON q.rank = e.rank AND q.event_id = e.event_id
    WHERE e.cat = 'annotation' AND starts_with(n.name, 'gloo:');

-- Compute: operators on the main thread and pipeline actions (whose pace may be synthetic), less
-- the calls into the backend: DTensor's operators contain their wait.
CREATE TEMP TABLE _operator_layers AS
    SELECT e.rank AS key, e.ts_ns AS start_ns, e.ts_ns + e.dur_ns AS end_ns,
        (starts_with(n.name, 'aten::') OR starts_with(n.name, 'tracekit.action '))::INT AS a,
        regexp_matches(n.name, '^(c10d|_c10d_functional|c10d_functional)::')::INT AS b,
        0 AS c, 0 AS d
    FROM event AS e
    JOIN rank AS r ON r.rank = e.rank AND r.evidence = 'operator'
    JOIN name AS n USING (name_id)
    JOIN thread AS t ON t.rank = e.rank AND t.thread_id = e.thread_id AND t.is_main
    ANTI JOIN quarantine AS q ON q.rank = e.rank AND q.event_id = e.event_id
    WHERE e.cat IN ('cpu_op', 'annotation');

CREATE TEMP TABLE _computing AS
    WITH _open AS (
        SELECT key, start_ns, end_ns FROM sweep('_operator_layers') WHERE a > 0 AND b = 0
    )
    SELECT key AS rank, start_ns, end_ns FROM union_of('_open');

-- Cut at the step boundaries, so that each stretch belongs to one step.
INSERT INTO work BY NAME
    SELECT c.rank, 'compute' AS class,
        greatest(c.start_ns, h.host_start_ns) AS start_ns,
        least(c.end_ns, h.host_end_ns) AS end_ns, h.step
    FROM _computing AS c JOIN _host_step AS h
        ON h.rank = c.rank AND c.start_ns < h.host_end_ns AND c.end_ns > h.host_start_ns
    UNION ALL BY NAME
    SELECT key AS rank, 'compute' AS class, start_ns, end_ns, NULL::INTEGER AS step
    FROM (
        WITH _layers AS (
            SELECT rank AS key, start_ns, end_ns, 1 AS a, 0 AS b, 0 AS c, 0 AS d FROM _computing
            UNION ALL
            SELECT rank, host_start_ns, host_end_ns, 0, 1, 0, 0 FROM _host_step
        )
        SELECT * FROM sweep('_layers') WHERE a > 0 AND b = 0
    );
