-- Only where EXISTS (FROM name WHERE regexp_matches(name, '^(cuda|cu|hip)GraphLaunch'))
-- A graph launch whose work is not in a file that holds work of others: it was lost.
INSERT INTO damage
    WITH _graph AS (
        SELECT e.rank, e.file_id, e.event_id, e.correlation, e.ts_ns, n.name
        FROM event AS e
        JOIN (
            FROM name WHERE regexp_matches(name, '^(cuda|cu|hip)GraphLaunch')
        ) AS n USING (name_id)
        WHERE e.cat = 'runtime'
    )
    SELECT NULL, l.rank, 'graph launch without work', NULL, count(*),
        'none of its work is in the trace: ' || min(l.name)
        || CASE WHEN count(*) > 1 THEN ' and others' ELSE '' END
        || ' at ' || min(l.ts_ns) || ' ns',
        'damage'
    FROM _graph AS l
    SEMI JOIN _gpu AS g ON g.file_id = l.file_id
    ANTI JOIN _gpu AS o ON o.file_id = l.file_id AND o.correlation = l.correlation
    ANTI JOIN _link AS k ON k.rank = l.rank AND k.launch_id = l.event_id
    GROUP BY l.rank;
