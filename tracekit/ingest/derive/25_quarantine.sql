-- Work that cannot be true is named and kept out of every figure.

-- Work of one stream runs in order, give or take a few microseconds of overlapped launch. An event
-- that covers several complete, mutually serial events of its own stream did not run so long:
-- its end was lost. (Kernels of one graph launch share a correlation id and may run in parallel;
-- communication waits beside the compute of a stream that a trace may merge with its own.)
-- Streams in which nothing covers its neighbour hold none, and are most: they are passed over.
CREATE TEMP TABLE _covering AS
    SELECT DISTINCT rank, device, stream
    FROM (
        SELECT rank, device, stream, ts_ns + dur_ns AS end_ns, dur_ns,
            lead(ts_ns + dur_ns) OVER (
                PARTITION BY rank, device, stream ORDER BY ts_ns, dur_ns DESC, event_id
            ) AS next_end_ns
        FROM _gpu
    )
    WHERE next_end_ns <= end_ns AND dur_ns > 0;

CREATE TEMP TABLE _impossible AS
    WITH _ordered AS (
        SELECT rank, event_id, ts_ns AS start_ns, ts_ns + dur_ns AS end_ns, correlation,
            lead(ts_ns, 1) OVER w AS s1, lead(ts_ns + dur_ns, 1) OVER w AS e1,
            lead(ts_ns, 2) OVER w AS s2, lead(ts_ns + dur_ns, 2) OVER w AS e2,
            lead(ts_ns, 3) OVER w AS s3, lead(ts_ns + dur_ns, 3) OVER w AS e3,
            lead(ts_ns + dur_ns, 8) OVER w AS e8, name_id,
            lead(correlation, 1) OVER w AS c1, lead(correlation, 3) OVER w AS c3
        FROM _gpu AS g
        SEMI JOIN _covering AS c ON c.rank = g.rank
            AND c.device IS NOT DISTINCT FROM g.device AND c.stream IS NOT DISTINCT FROM g.stream
        WINDOW w AS (PARTITION BY rank, device, stream ORDER BY ts_ns, dur_ns DESC, event_id)
    )
    SELECT rank, event_id, 'impossible duration' AS kind
    FROM _ordered
    WHERE e8 <= end_ns AND e3 <= end_ns AND e1 <= s2 AND e2 <= s3 AND s1 < e1 AND s2 < e2 AND s3 < e3
        AND (correlation IS NULL OR correlation IS DISTINCT FROM c1
            OR correlation IS DISTINCT FROM c3)
        AND name_id NOT IN (SELECT name_id FROM _communication_name);

-- A device that starts long before its launch has lost its time base.
INSERT INTO _impossible
    SELECT g.rank, g.event_id, 'kernel before its launch'
    FROM _gpu AS g JOIN _link AS l USING (rank, event_id)
    WHERE g.ts_ns + 1000000000 < l.launch_ns;

INSERT INTO _impossible
    SELECT rank, event_id, 'impossible time' FROM _lost;

-- One reason is enough; that of the launch says most.
INSERT INTO quarantine BY NAME
    SELECT i.rank, i.event_id, max(i.kind) AS kind, any_value(h.step) AS step
    FROM _impossible AS i
    LEFT JOIN _link AS l USING (rank, event_id)
    LEFT JOIN _host_step AS h
        ON h.rank = i.rank AND l.launch_ns >= h.host_start_ns AND l.launch_ns < h.host_end_ns
    GROUP BY i.rank, i.event_id;

INSERT INTO damage
    SELECT NULL, q.rank, q.kind, NULL, count(*),
        'left out of every figure: ' || min_by(n.name, e.event_id)
        || CASE WHEN count(*) > 1 THEN ' and others' ELSE '' END
        || ' at ' || min(e.ts_ns) || ' ns',
        'damage'
    FROM quarantine AS q
    JOIN event AS e USING (rank, event_id)
    JOIN name AS n USING (name_id)
    GROUP BY q.rank, q.kind;
