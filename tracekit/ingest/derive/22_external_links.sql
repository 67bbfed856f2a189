-- Only where EXISTS (FROM _gpu ANTI JOIN _link USING (rank, event_id) WHERE external_id IS NOT NULL)
-- What no correlation links. An id that several processes carry links nothing here either.
INSERT INTO _link
    WITH _open AS (
        SELECT g.rank, g.event_id, g.file_id, g.external_id
        FROM _gpu AS g ANTI JOIN _link AS l USING (rank, event_id)
        WHERE g.external_id IS NOT NULL
    ),
    _callers AS (
        SELECT e.file_id, e.external_id, e.cat = 'runtime' AS is_call, t.pid,
            _in_order(e.ts_ns, e.event_id) AS number
        FROM event AS e SEMI JOIN _open AS o USING (file_id, external_id)
        JOIN thread AS t ON t.rank = e.rank AND t.thread_id = e.thread_id
        ANTI JOIN _lost AS x ON x.rank = e.rank AND x.event_id = e.event_id
        WHERE e.cat IN ('runtime', 'cpu_op')
    )
    SELECT o.rank, o.event_id, _event_in(c.first), _time_in(c.first)
    FROM _open AS o
    JOIN (
        SELECT file_id, external_id,
            coalesce(min(number) FILTER (is_call), min(number)) AS first
        FROM _callers GROUP BY file_id, external_id
        HAVING count(DISTINCT pid) FILTER (is_call) = 1
            OR (count(*) FILTER (is_call) = 0 AND count(DISTINCT pid) = 1)
    ) AS c USING (file_id, external_id);
