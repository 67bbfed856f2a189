-- Only where EXISTS (FROM comm_args WHERE src_rank IS NOT NULL OR dst_rank IS NOT NULL)
-- A send and its receive: the k-th between two ranks in one group. Each end names its peer only
-- (torch writes Dst Rank on a send, Src Rank on a receive, as global ranks); where it does not, or
-- the two ends count differently, nothing is matched.
CREATE TEMP TABLE _end AS
    SELECT w.rank, w.event_id, w.operation, w.start_ns, w.end_ns,
        coalesce(a.group_name, '') AS group_name,
        CASE WHEN w.operation = 'send' THEN w.rank ELSE a.src_rank END AS src_rank,
        CASE WHEN w.operation = 'send' THEN a.dst_rank ELSE w.rank END AS dst_rank
    FROM work AS w JOIN comm_args AS a USING (rank, event_id)
    WHERE w.operation IN ('send', 'recv');

INSERT INTO transfer BY NAME
    WITH _ordered AS (
        SELECT *,
            row_number() OVER (
                PARTITION BY operation, src_rank, dst_rank, group_name ORDER BY start_ns, event_id
            ) AS ordinal,
            count(*) OVER (PARTITION BY operation, src_rank, dst_rank, group_name) AS total
        FROM _end WHERE src_rank IS NOT NULL AND dst_rank IS NOT NULL
    )
    SELECT s.src_rank, s.dst_rank,
        row_number() OVER (PARTITION BY s.src_rank, s.dst_rank ORDER BY s.start_ns) AS ordinal,
        s.event_id AS send_event, r.event_id AS recv_event,
        s.start_ns AS send_start_ns, r.start_ns AS recv_start_ns, r.end_ns AS recv_end_ns
    FROM _ordered AS s JOIN _ordered AS r
        USING (src_rank, dst_rank, group_name, ordinal, total)
    WHERE s.operation = 'send' AND r.operation = 'recv';
