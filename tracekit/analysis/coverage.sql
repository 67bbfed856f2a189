WITH
-- A rank may have several captures: one that is empty takes nothing from one that is whole.
_files AS (
    SELECT rank,
        CASE WHEN bool_and(state = 'empty') THEN 'empty'
            WHEN bool_or(state = 'partial') THEN 'partial' ELSE 'whole' END AS state,
        sum(events)::BIGINT AS events
    FROM file WHERE kind = 'trace' GROUP BY rank
),
_events AS (
    SELECT rank, min(ts_ns) AS first_ns, max(ts_ns + dur_ns) AS last_ns
    FROM event ANTI JOIN quarantine USING (rank, event_id) GROUP BY rank
),
_steps AS (SELECT rank, count(*) AS steps FROM step GROUP BY rank),
_unlinked AS (
    SELECT rank, count(*) FILTER (launch_id IS NULL) AS unlinked
    FROM work WHERE event_id IS NOT NULL GROUP BY rank
),
_damage AS (
    SELECT rank, sum(count)::BIGINT AS damaged
    FROM damage WHERE severity = 'damage' GROUP BY rank
),
_clocks AS (SELECT count(DISTINCT domain) AS domains FROM clock),
_rows AS (
    SELECT r.rank, p.stage, r.host,
        coalesce(f.state, 'no trace') AS state,
        r.evidence,
        coalesce(s.steps, 0) AS steps,
        coalesce(f.events, 0) AS events,
        e.last_ns - e.first_ns AS span_ns,
        CASE WHEN r.evidence = 'kernel' THEN coalesce(u.unlinked, 0) END AS unlinked,
        coalesce(d.damaged, 0) AS damaged,
        CASE WHEN c.aligned THEN c.offset_ns END AS clock_offset_ns,
        c.spread_ns AS clock_spread_ns,
        CASE
            WHEN f.state <> 'whole' THEN 'the trace is ' || f.state
            WHEN k.domains > 1 AND NOT c.aligned THEN 'clock ' || c.note
            WHEN r.capture_state IS NOT NULL AND r.capture_state <> 'finished'
                THEN 'capture ' || r.capture_state
        END AS missing
    FROM rank AS r
    CROSS JOIN _clocks AS k
    JOIN rank_stage AS p USING (rank)
    LEFT JOIN _files AS f USING (rank)
    LEFT JOIN _events AS e USING (rank)
    LEFT JOIN _steps AS s USING (rank)
    LEFT JOIN _unlinked AS u USING (rank)
    LEFT JOIN _damage AS d USING (rank)
    LEFT JOIN clock AS c USING (rank)
)
SELECT
    CASE WHEN list_contains($by, 'rank') THEN rank END AS rank,
    * EXCLUDE (rank)
FROM _rows
ORDER BY _rows.rank
