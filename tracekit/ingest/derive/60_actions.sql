-- Only where EXISTS (FROM name WHERE regexp_matches(name, '^(tracekit\.action |PP:\d)'))
-- Pipeline actions, from the names that the collector gives them, else, on the device, from the
-- names that torch's multi-stage schedules give theirs: PP:{virtual stage}{F|B|I|W}{micro-batch}.
-- On the CPU torch's spans hold the blocking receive, so there they are no evidence.
-- Numbers that no pipeline has are names, and not actions.
CREATE TEMP TABLE _marked AS
    WITH _named AS (
        SELECT e.rank, e.ts_ns, e.dur_ns,
            regexp_extract(n.name,
                '^tracekit\.action ([FBIW]) stage=(\d{1,4}) chunk=(\d{1,4})(?: vstage=\d+)? mb=(\d{1,9})$',
                ['kind', 'stage', 'chunk', 'mb']) AS ours,
            regexp_extract(n.name, '^PP:(\d{1,5})([FBIW])(\d{1,9})$', ['vstage', 'kind', 'mb']) AS torchs
        FROM event AS e JOIN name AS n USING (name_id)
        ANTI JOIN quarantine AS q ON q.rank = e.rank AND q.event_id = e.event_id
        WHERE e.cat = 'annotation'
            AND (starts_with(n.name, 'tracekit.action ') OR starts_with(n.name, 'PP:'))
    ),
    -- As many positions as virtual stages over those of one rank, placed in a loop.
    _shape AS (
        SELECT (max(torchs.vstage::INT) + 1) // max(own) AS positions
        FROM (
            SELECT torchs, count(DISTINCT torchs.vstage) OVER (PARTITION BY rank) AS own
            FROM _named WHERE torchs.kind <> ''
        )
    )
    SELECT rank, ts_ns, dur_ns, ours.kind AS kind, ours.stage::INT AS stage,
        ours.chunk::INT AS chunk, ours.mb::INT AS microbatch
    FROM _named WHERE ours.kind <> ''
    UNION ALL
    SELECT m.rank, m.ts_ns, m.dur_ns, m.torchs.kind,
        m.torchs.vstage::INT % s.positions, m.torchs.vstage::INT // s.positions,
        m.torchs.mb::INT
    FROM _named AS m JOIN rank AS r USING (rank) CROSS JOIN _shape AS s
    WHERE m.torchs.kind <> '' AND r.evidence = 'kernel'
        AND NOT EXISTS (FROM _named AS o WHERE o.ours.kind <> '');

CREATE TEMP TABLE _named_action AS
    SELECT m.* EXCLUDE (ts_ns, dur_ns), h.step,
        m.ts_ns AS host_start_ns, m.ts_ns + m.dur_ns AS host_end_ns
    FROM _marked AS m
    LEFT JOIN _host_step AS h ON h.rank = m.rank
        AND m.ts_ns >= h.host_start_ns AND m.ts_ns < h.host_end_ns;

-- Which replica of the pipeline a rank belongs to: its pp group, else one for all.
CREATE TEMP TABLE _pipeline AS
    WITH _groups AS (
        SELECT rank, list_min(ranks) AS first_rank FROM mesh WHERE _dim_of('mesh_' || dim) = 'pp'
        UNION ALL
        SELECT rank, list_min(ranks) FROM process_group WHERE dim = 'pp' AND complete
    )
    SELECT rank, min(first_rank) AS first_rank FROM _groups GROUP BY rank;

-- On the device an action lasts from the first to the last computation that it launched (backward
-- kernels are launched by autograd's own thread while the action waits: any thread counts). On
-- the CPU the action is its own span, since receives come before it.
CREATE TEMP TABLE _launched AS
    SELECT w.rank, a.host_start_ns, min(w.start_ns) AS start_ns, max(w.end_ns) AS end_ns
    FROM work AS w
    ASOF JOIN _named_action AS a
        ON a.rank = w.rank AND w.launch_ns >= a.host_start_ns
    WHERE w.class = 'compute' AND w.launch_ns < a.host_end_ns
    GROUP BY w.rank, a.host_start_ns;

INSERT INTO action BY NAME
    SELECT a.rank, a.step, a.kind, a.stage, a.chunk, a.microbatch,
        coalesce(p.first_rank, 0) AS pipeline,
        a.host_start_ns, a.host_end_ns,
        CASE WHEN r.evidence = 'operator' THEN a.host_start_ns ELSE l.start_ns END AS start_ns,
        CASE WHEN r.evidence = 'operator' THEN a.host_end_ns ELSE l.end_ns END AS end_ns
    FROM _named_action AS a
    JOIN rank AS r USING (rank)
    LEFT JOIN _pipeline AS p USING (rank)
    LEFT JOIN _launched AS l ON l.rank = a.rank AND l.host_start_ns = a.host_start_ns;

UPDATE work SET in_action = true
FROM (
    SELECT w.rank, w.event_id
    FROM work AS w ASOF JOIN _named_action AS a
        ON a.rank = w.rank AND w.launch_ns >= a.host_start_ns
    WHERE w.launch_ns < a.host_end_ns
) AS inside
WHERE work.rank = inside.rank AND work.event_id = inside.event_id;
