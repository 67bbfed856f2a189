-- Work that cannot be true is named and kept out of every figure.

-- Work of one stream runs in order, give or take a few microseconds of overlapped launch. An event
-- that covers several complete, mutually serial events of its own stream did not run so long:
-- its end was lost. (Kernels of one graph launch share a correlation id and may run in parallel;
-- communication waits beside the compute of a stream that a trace may merge with its own.)
CREATE TEMP TABLE _impossible AS
    WITH _ordered AS (
        SELECT rank, event_id, ts_ns AS start_ns, ts_ns + dur_ns AS end_ns, correlation,
            lead(ts_ns, 1) OVER w AS s1, lead(ts_ns + dur_ns, 1) OVER w AS e1,
            lead(ts_ns, 2) OVER w AS s2, lead(ts_ns + dur_ns, 2) OVER w AS e2,
            lead(ts_ns, 3) OVER w AS s3, lead(ts_ns + dur_ns, 3) OVER w AS e3,
            lead(ts_ns + dur_ns, 8) OVER w AS e8, name_id,
            lead(correlation, 1) OVER w AS c1, lead(correlation, 3) OVER w AS c3
        FROM _gpu
        WINDOW w AS (PARTITION BY rank, device, stream ORDER BY ts_ns, dur_ns DESC, event_id)
    )
    SELECT rank, event_id, 'impossible duration' AS kind
    FROM _ordered
    WHERE e8 <= end_ns AND e3 <= end_ns AND e1 <= s2 AND e2 <= s3 AND s1 < e1 AND s2 < e2 AND s3 < e3
        AND (correlation IS NULL OR correlation IS DISTINCT FROM c1
            OR correlation IS DISTINCT FROM c3)
        AND name_id NOT IN (
            SELECT name_id FROM name, _setting
            WHERE regexp_matches(name, _setting.communication_pattern, 'i')
        )
    UNION ALL
    -- A device that starts long before its launch has lost its time base.
    SELECT g.rank, g.event_id, 'work before its launch'
    FROM _gpu AS g JOIN _link AS l USING (rank, event_id)
    WHERE g.ts_ns + 1000000000 < l.launch_ns
    UNION
    -- Nothing runs more than a day from the middle of a trace: a time of 0 is no time.
    SELECT g.rank, g.event_id, 'impossible time'
    FROM _gpu AS g
    JOIN (SELECT rank, median(ts_ns)::BIGINT AS middle_ns FROM event GROUP BY rank) AS m USING (rank)
    ANTI JOIN _link AS l ON l.rank = g.rank AND l.event_id = g.event_id
        AND g.ts_ns + 1000000000 < l.launch_ns
    WHERE abs(g.ts_ns - m.middle_ns) > 86400000000000;

INSERT INTO damage
    SELECT NULL, i.rank, i.kind, NULL, count(*),
        'left out of every figure: ' || any_value(n.name)
        || CASE WHEN count(*) > 1 THEN ' and others' ELSE '' END
        || ' at ' || min(e.ts_ns) || ' ns'
    FROM _impossible AS i
    JOIN event AS e USING (rank, event_id)
    JOIN name AS n USING (name_id)
    GROUP BY i.rank, i.kind;
