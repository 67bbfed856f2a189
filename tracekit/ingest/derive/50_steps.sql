-- Only where EXISTS (FROM _host_step)
-- The window of a step ends when the next step has begun on the host and all that was launched
-- up to here has run: so work lies in the window of the step that launched it, and the windows
-- of a rank tile its captured span. Between two captures there is no window.
INSERT INTO step BY NAME
    WITH _reached AS (
        SELECT h.*, w.own_end_ns
        FROM _host_step AS h
        LEFT JOIN (
            SELECT rank, step, max(end_ns) AS own_end_ns
            FROM work WHERE launch_ns IS NOT NULL GROUP BY rank, step
        ) AS w ON w.rank = h.rank AND w.step = h.step
    ),
    _ends AS (
        SELECT rank, step, host_start_ns, host_end_ns,
            max(greatest(host_end_ns, coalesce(own_end_ns, host_end_ns))) OVER (
                PARTITION BY rank ORDER BY host_start_ns, step ROWS UNBOUNDED PRECEDING
            ) AS end_ns
        FROM _reached
    )
    SELECT rank, step, host_start_ns, host_end_ns,
        greatest(
            host_start_ns,
            coalesce(lag(end_ns) OVER (PARTITION BY rank ORDER BY host_start_ns, step), 0)
        ) AS start_ns,
        end_ns
    FROM _ends;
