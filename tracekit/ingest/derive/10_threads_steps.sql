-- Names that mean something to the derivation, each looked at once.
CREATE TEMP TABLE _step_name AS
    SELECT name_id, TRY_CAST(substr(name, 14) AS INTEGER) AS step
    FROM name WHERE starts_with(name, 'ProfilerStep#');

CREATE TEMP TABLE _communication_name AS
    SELECT name_id, name FROM name
    WHERE regexp_matches(name, getvariable('communication_pattern'), 'i');

-- Nothing runs more than a day from the middle of its file: a time of 0 is no time. A file whose
-- times lie closer together than that holds no such event, and is not looked at.
CREATE TEMP TABLE _lost AS
    WITH _wide AS (
        SELECT file_id FROM file WHERE is_wide
    ),
    _middle AS (
        SELECT file_id, quantile_disc(ts_ns, 0.51) AS middle_ns  -- of two, the later
        FROM event SEMI JOIN _wide USING (file_id) GROUP BY file_id
    )
    SELECT e.rank, e.event_id
    FROM event AS e JOIN _middle AS m USING (file_id)
    WHERE abs(e.ts_ns::HUGEINT - m.middle_ns) > 86400000000000;

-- Step marks. A step marked twice on a rank (two threads, two captures) is the first of them.
CREATE TEMP TABLE _mark AS
    SELECT e.rank, e.thread_id, n.step, e.ts_ns, e.ts_ns + e.dur_ns AS end_ns,
        e.cat = 'annotation' AS is_annotation
    FROM event AS e JOIN _step_name AS n USING (name_id)
    ANTI JOIN _lost AS x ON x.rank = e.rank AND x.event_id = e.event_id
    WHERE e.cat IN ('annotation', 'cpu_op');

CREATE TEMP TABLE _step_mark AS
    SELECT rank, step, min(ts_ns) AS host_start_ns,
        min_by(end_ns, (ts_ns, -end_ns)) AS mark_end_ns,
        count(*) FILTER (is_annotation) AS marks
    FROM _mark ANTI JOIN (SELECT rank, cut_step AS step FROM rank) AS cut USING (rank, step)
    WHERE step IS NOT NULL GROUP BY rank, step;

CREATE TEMP TABLE _host_step AS
    -- A step ends where the next begins; before a gap in the numbers, where its own mark ends.
    SELECT rank, step, host_start_ns,
        CASE WHEN lead(step) OVER w = step + 1 THEN lead(host_start_ns) OVER w
            ELSE least(mark_end_ns, coalesce(lead(host_start_ns) OVER w, mark_end_ns))
        END AS host_end_ns
    FROM _step_mark
    WINDOW w AS (PARTITION BY rank ORDER BY host_start_ns, step);

INSERT INTO damage
    SELECT NULL, rank, 'step marked twice', NULL, sum(marks - 1)::BIGINT,
        'only the first mark counts: step ' || min(step)
        || CASE WHEN count(*) > 1 THEN ' and others' ELSE '' END,
        'damage'
    FROM _step_mark WHERE marks > 1 GROUP BY rank;

-- The main thread of a rank is the one that carries its step marks, else its busiest one.
UPDATE thread SET is_main = true
FROM (
    SELECT b.rank, b.thread_id
    FROM (
        SELECT rank, thread_id, count(*) AS events
        FROM event WHERE cat IN ('annotation', 'cpu_op') GROUP BY rank, thread_id
    ) AS b
    LEFT JOIN (SELECT rank, thread_id, count(*) AS marks FROM _mark GROUP BY ALL) AS m
        ON m.rank = b.rank AND m.thread_id = b.thread_id
    QUALIFY row_number() OVER (
        PARTITION BY b.rank ORDER BY coalesce(m.marks, 0) DESC, b.events DESC, b.thread_id
    ) = 1
) AS busiest
WHERE thread.rank = busiest.rank AND thread.thread_id = busiest.thread_id;
