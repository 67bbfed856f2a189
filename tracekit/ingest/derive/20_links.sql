-- The launch of each piece of GPU work: the runtime call of the same correlation id, else the
-- runtime call or operator of the same External id. Ids are unique within one capture of a rank
-- only, so nothing is ever joined across files; 0 and -1 stand for an id that the writer did not
-- know. A graph launch owns many kernels; where several calls claim one id the first is taken, so
-- that no work is counted twice.
CREATE TEMP TABLE _gpu AS
    SELECT rank, event_id, file_id, cat, name_id, ts_ns, dur_ns, device, stream,
        CASE WHEN correlation NOT IN (0, -1) THEN correlation END AS correlation,
        CASE WHEN external_id NOT IN (0, -1) THEN external_id END AS external_id
    FROM event WHERE cat IN ('kernel', 'gpu_memcpy', 'gpu_memset');

-- The first of several calls, by time and then by number, as one number that is quick to compare.
CREATE MACRO _in_order(ts_ns, event_id) AS
    (ts_ns::HUGEINT + 9223372036854775808) * 4294967296 + event_id;
CREATE MACRO _event_in(number) AS (number & 4294967295)::INTEGER;
CREATE MACRO _time_in(number) AS ((number >> 32) - 9223372036854775808)::BIGINT;

-- What the calls of several processes of a file carry, where it holds several: see 21.
CREATE TEMP TABLE _shared (rank INTEGER, file_id INTEGER, correlation BIGINT);

CREATE TEMP TABLE _link AS
    SELECT g.rank, g.event_id, _event_in(c.first) AS launch_id, _time_in(c.first) AS launch_ns
    FROM _gpu AS g
    JOIN (
        SELECT file_id, correlation, min(_in_order(ts_ns, event_id)) AS first
        FROM event AS e
        ANTI JOIN _lost AS x ON x.rank = e.rank AND x.event_id = e.event_id
        WHERE cat = 'runtime' AND correlation NOT IN (0, -1)
        GROUP BY file_id, correlation
    ) AS c USING (file_id, correlation);
