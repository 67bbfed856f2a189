-- The one implementation of interval algebra: union, intersection and difference of the intervals
-- of up to four layers, per key, in one sweep over their ends.
--
-- sweep(source) reads (key, start_ns, end_ns, a, b, c, d): key is any comparable value, a to d are
-- 0 or 1 and say to which layers the interval belongs. It gives disjoint, non-empty segments
-- (key, start_ns, end_ns, a, b, c, d) in which a to d count the intervals of each layer that
-- cover the segment; stretches that nothing covers are left out. So
--   |U(A)|         = sum(end_ns - start_ns) FILTER (a > 0)
--   |U(A) n U(B)|  = sum(end_ns - start_ns) FILTER (a > 0 AND b > 0)
--   |U(A) \ U(B)|  = sum(end_ns - start_ns) FILTER (a > 0 AND b = 0)
-- Empty and inverted intervals contribute nothing.
CREATE MACRO sweep(source) AS TABLE
    WITH _ends AS (
        SELECT key, start_ns AS t, a, b, c, d
        FROM query_table(source) WHERE end_ns > start_ns
        UNION ALL
        SELECT key, end_ns AS t, -a, -b, -c, -d
        FROM query_table(source) WHERE end_ns > start_ns
    ),
    -- At the end of a key its counts are zero again, so the sums run on over all keys: one sort, and
    -- no partitions. Ends at the same instant may stand in any order, for nothing lies between them.
    _segments AS (
        SELECT
            key,
            t AS start_ns,
            lead(t) OVER w AS end_ns,
            (sum(a) OVER w)::BIGINT AS a,
            (sum(b) OVER w)::BIGINT AS b,
            (sum(c) OVER w)::BIGINT AS c,
            (sum(d) OVER w)::BIGINT AS d
        FROM _ends
        WINDOW w AS (ORDER BY key, t ROWS UNBOUNDED PRECEDING)
    )
    SELECT key, start_ns, end_ns, a, b, c, d
    FROM _segments
    WHERE end_ns > start_ns AND (a > 0 OR b > 0 OR c > 0 OR d > 0);

-- union_of(source) reads (key, start_ns, end_ns) and gives the maximal disjoint intervals of
-- their union; intervals that touch are joined.
CREATE MACRO union_of(source) AS TABLE
    WITH _ordered AS (
        SELECT key, start_ns, end_ns,
            max(end_ns) OVER (
                PARTITION BY key ORDER BY start_ns, end_ns
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) AS reached_ns
        FROM query_table(source)
        WHERE end_ns > start_ns
    ),
    _islands AS (
        SELECT *, sum(CASE WHEN start_ns <= reached_ns THEN 0 ELSE 1 END) OVER (
            PARTITION BY key ORDER BY start_ns, end_ns ROWS UNBOUNDED PRECEDING
        ) AS island
        FROM _ordered
    )
    SELECT key, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM _islands GROUP BY key, island;
