"""All SQL of the TUI.

The timeline never fetches more than it can draw: a query clips to the window, bins per cell and
gives one row per cell. Times are aligned: ``ts_ns - clock.offset_ns``. Parameters: ``$lo`` and
``$hi`` are the window, ``$n`` its number of cells, ``$ranks`` the ranks on screen.
"""

# Disjoint stretches of one kind per rank, worked out once per rank on first sight.
CREATE_SEGMENTS = """
CREATE OR REPLACE TEMP TABLE _segment (
    rank INTEGER, start_ns BIGINT, end_ns BIGINT, kind INTEGER, copies BOOLEAN
)
"""

# kind: model.Kind.
FILL_SEGMENTS = """
INSERT INTO _segment
WITH _layers AS (
    SELECT w.rank AS key,
        w.start_ns - coalesce(c.offset_ns, 0) AS start_ns,
        w.end_ns - coalesce(c.offset_ns, 0) AS end_ns,
        (w.class = 'compute')::INT AS a,
        (w.class = 'communication')::INT AS b,
        (w.class = 'memory')::INT AS c,
        0 AS d
    FROM work AS w LEFT JOIN clock AS c USING (rank)
    WHERE list_contains($ranks::INT[], w.rank)
)
SELECT key, start_ns, end_ns,
    CASE WHEN a > 0 AND b = 0 THEN 0 WHEN a > 0 THEN 1 WHEN b > 0 THEN 2 ELSE 3 END,
    c > 0
FROM sweep('_layers')
ORDER BY key, start_ns
"""

# Cell c holds [ceil(c * span / n), ceil((c + 1) * span / n)) after the start: Window.edge.
CELLS = """
WITH _clipped AS (
    SELECT rank, kind, copies,
        greatest(start_ns, $lo) - $lo AS start_ns,
        least(end_ns, $hi) - $lo AS end_ns
    FROM _segment
    WHERE list_contains($ranks::INT[], rank) AND start_ns < $hi AND end_ns > $lo
),
_placed AS (
    SELECT *, start_ns * $n // ($hi - $lo) AS first, (end_ns - 1) * $n // ($hi - $lo) AS last
    FROM _clipped
),
_cut AS (
    SELECT rank, kind, copies, first AS cell, end_ns - start_ns AS ns
    FROM _placed WHERE first = last
    UNION ALL
    SELECT rank, kind, copies, cell,
        least(end_ns, ((cell + 1) * ($hi - $lo) + $n - 1) // $n)
            - greatest(start_ns, (cell * ($hi - $lo) + $n - 1) // $n) AS ns
    FROM (SELECT *, unnest(range(first, last + 1)) AS cell FROM _placed WHERE first < last)
)
SELECT rank, cell::INT,
    coalesce(sum(CASE WHEN kind = 0 THEN ns END), 0)::BIGINT,
    coalesce(sum(CASE WHEN kind = 1 THEN ns END), 0)::BIGINT,
    coalesce(sum(CASE WHEN kind = 2 THEN ns END), 0)::BIGINT,
    coalesce(sum(CASE WHEN kind = 3 THEN ns END), 0)::BIGINT,
    coalesce(sum(CASE WHEN copies THEN ns END), 0)::BIGINT
FROM _cut GROUP BY rank, cell
"""

# The action that fills most of each cell.
ACTIONS = """
WITH _clipped AS (
    SELECT a.rank, a.kind, a.stage, a.microbatch,
        a.start_ns - coalesce(c.offset_ns, 0) AS began_ns,
        greatest(a.start_ns - coalesce(c.offset_ns, 0), $lo) - $lo AS start_ns,
        least(a.end_ns - coalesce(c.offset_ns, 0), $hi) - $lo AS end_ns
    FROM action AS a LEFT JOIN clock AS c USING (rank)
    WHERE list_contains($ranks::INT[], a.rank)
        AND a.start_ns - coalesce(c.offset_ns, 0) < $hi
        AND a.end_ns - coalesce(c.offset_ns, 0) > $lo
),
_placed AS (
    SELECT *, unnest(range(
        start_ns * $n // ($hi - $lo), (end_ns - 1) * $n // ($hi - $lo) + 1)) AS cell
    FROM _clipped WHERE end_ns > start_ns
)
SELECT rank, cell::INT, most.kind, most.stage, most.microbatch, most.began_ns
FROM (
    SELECT rank, cell, arg_max(
        {'kind': kind, 'stage': stage, 'microbatch': microbatch, 'began_ns': began_ns},
        {'ns': least(end_ns, ((cell + 1) * ($hi - $lo) + $n - 1) // $n)
            - greatest(start_ns, (cell * ($hi - $lo) + $n - 1) // $n), 'first': -began_ns}
    ) AS most
    FROM _placed GROUP BY rank, cell
)
"""

# Cell of each step's start; -1: the step began before the window.
STEPS = """
WITH _aligned AS (
    SELECT s.rank, s.step,
        s.start_ns - coalesce(c.offset_ns, 0) AS start_ns,
        s.end_ns - coalesce(c.offset_ns, 0) AS end_ns
    FROM step AS s LEFT JOIN clock AS c USING (rank)
    WHERE list_contains($ranks::INT[], s.rank)
)
SELECT rank,
    CASE WHEN start_ns < $lo THEN -1 ELSE (start_ns - $lo) * $n // ($hi - $lo) END::INT AS cell,
    min(step)
FROM _aligned WHERE start_ns < $hi AND end_ns > $lo
GROUP BY rank, cell
"""

# Only bars that are wide enough to be read are given names.
LABELS = """
WITH _wide AS (
    SELECT w.rank, w.class, w.event_id, w.operation,
        w.start_ns - coalesce(c.offset_ns, 0) AS start_ns,
        w.end_ns - coalesce(c.offset_ns, 0) AS end_ns
    FROM work AS w LEFT JOIN clock AS c USING (rank)
    WHERE list_contains($ranks::INT[], w.rank)
        AND w.start_ns - coalesce(c.offset_ns, 0) < $hi
        AND w.end_ns - coalesce(c.offset_ns, 0) > $lo
        AND w.end_ns - w.start_ns >= $shortest
    LIMIT $most
)
SELECT w.rank, w.class,
    greatest(0, (w.start_ns - $lo) * $n // ($hi - $lo))::INT,
    least($n, (w.end_ns - 1 - $lo) * $n // ($hi - $lo) + 1)::INT,
    coalesce(n.name, w.operation, 'operators')
FROM _wide AS w
LEFT JOIN event AS e ON e.rank = w.rank AND e.event_id = w.event_id
LEFT JOIN name AS n USING (name_id)
ORDER BY 1, 2, 3, 4
"""

WORK_AT = """
SELECT class, event_id, start_ns, end_ns, step, stream, dim, operation,
    count(*) OVER () - 1 AS others
FROM work
WHERE rank = $rank AND start_ns < $hi AND end_ns > $lo
    AND ($class IS NULL OR class = $class)
ORDER BY least(end_ns, $hi) - greatest(start_ns, $lo) DESC, start_ns
LIMIT 1
"""

ACTION_AT = """
SELECT kind, stage, chunk, microbatch, pipeline, start_ns, end_ns, step,
    count(*) OVER () - 1 AS others
FROM action
WHERE rank = $rank AND start_ns < $hi AND end_ns > $lo
ORDER BY least(end_ns, $hi) - greatest(start_ns, $lo) DESC, start_ns
LIMIT 1
"""

NAME_OF = """
SELECT name FROM event JOIN name USING (name_id) WHERE rank = $rank AND event_id = $event
"""

STEP_AFTER = """
SELECT step, start_ns - coalesce(offset_ns, 0), end_ns - coalesce(offset_ns, 0)
FROM step LEFT JOIN clock USING (rank)
WHERE rank = $rank AND start_ns - coalesce(offset_ns, 0) > $time
ORDER BY start_ns LIMIT 1
"""

# The one before the step that holds the time.
STEP_BEFORE = """
SELECT step, start_ns - coalesce(offset_ns, 0), end_ns - coalesce(offset_ns, 0)
FROM step LEFT JOIN clock USING (rank)
WHERE rank = $rank AND start_ns - coalesce(offset_ns, 0) <= $time
ORDER BY start_ns DESC LIMIT 1 OFFSET 1
"""

# Ranks as the gutter and the overview name them.
RANKS = """
SELECT r.rank, r.host, r.device_name, r.evidence, s.stage, coalesce(c.aligned, true),
    s.stage IS NOT NULL
FROM rank AS r
LEFT JOIN rank_stage AS s USING (rank)
LEFT JOIN clock AS c USING (rank)
ORDER BY r.rank
"""

# First and last aligned instant of anything that the timeline can draw.
EXTENT = """
WITH _ends AS (
    SELECT rank, min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM work GROUP BY rank
    UNION ALL SELECT rank, min(start_ns), max(end_ns) FROM step GROUP BY rank
    UNION ALL SELECT rank, min(start_ns), max(end_ns) FROM action GROUP BY rank
)
SELECT min(start_ns - coalesce(offset_ns, 0)), max(end_ns - coalesce(offset_ns, 0))
FROM _ends LEFT JOIN clock USING (rank)
"""

STEP_RANGE = "SELECT count(DISTINCT step), min(step), max(step) FROM step"

COUNTS = "SELECT (SELECT count(*) FROM event), (SELECT max(world_size) FROM rank)"

# What the run says of itself, and distinct values of what every rank says.
NOTES = """
SELECT key, value, list(rank ORDER BY rank) FROM note GROUP BY key, value ORDER BY min(rank), key
"""

RANK_VALUES = """
SELECT list(DISTINCT backend ORDER BY backend) FILTER (backend IS NOT NULL),
    list(DISTINCT device_name ORDER BY device_name) FILTER (device_name IS NOT NULL),
    list(DISTINCT device_kind ORDER BY device_kind) FILTER (device_kind IS NOT NULL),
    (SELECT list(host ORDER BY first) FROM
        (SELECT host, min(rank) AS first FROM rank WHERE host IS NOT NULL GROUP BY host)),
    list(DISTINCT evidence ORDER BY evidence),
    list(DISTINCT schedule ORDER BY schedule) FILTER (schedule IS NOT NULL),
    list(DISTINCT microbatches ORDER BY microbatches) FILTER (microbatches IS NOT NULL),
    max(stages)
FROM rank
"""

DAMAGE = """
SELECT kind, sum(count)::BIGINT, list(DISTINCT rank ORDER BY rank) FILTER (rank IS NOT NULL),
    min(detail), count(DISTINCT detail)
FROM damage WHERE severity = 'damage' GROUP BY kind ORDER BY kind
"""

UNALIGNED = """
SELECT note, list(rank ORDER BY rank) FROM clock WHERE NOT aligned GROUP BY note ORDER BY min(rank)
"""

CAPTURES = """
SELECT capture_state, list(rank ORDER BY rank) FROM rank
WHERE capture_state IS NOT NULL AND capture_state <> 'finished'
GROUP BY capture_state ORDER BY min(rank)
"""
