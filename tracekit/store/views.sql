-- Events: each slice with what its track says.
CREATE VIEW event AS
    SELECT t.rank, s.event_id, t.file_id, t.cat, s.name_id, s.ts_ns, s.dur_ns, t.thread_id, t.device,
        t.stream, s.correlation, s.external_id
    FROM slice AS s JOIN track AS t USING (track_id);

-- Events with their names and details: what `tracekit query` and the TUI show.
CREATE VIEW events AS
    SELECT e.*, d.* EXCLUDE (rank, event_id), n.name, e.ts_ns + e.dur_ns AS end_ns
    FROM event AS e JOIN name AS n USING (name_id)
    LEFT JOIN event_detail AS d ON d.rank = e.rank AND d.event_id = e.event_id;

-- Work with the name of its event; a stretch of several operators has none.
CREATE VIEW works AS
    SELECT w.*, n.name
    FROM work AS w
    LEFT JOIN event AS e USING (rank, event_id)
    LEFT JOIN name AS n USING (name_id);

-- Where each rank stands in the pipeline; null for a rank with no pipeline action.
CREATE VIEW rank_stage AS
    SELECT r.rank, min(a.stage) AS stage, min(a.pipeline) AS pipeline
    FROM rank AS r LEFT JOIN action AS a USING (rank)
    GROUP BY r.rank;

-- Every key at the top of a trace but its events.
CREATE VIEW header AS
    SELECT file_id, rank, unnest(map_keys(header)) AS key, unnest(map_values(header)) AS value
    FROM file;

-- Keys of args that no column holds: what a reader would find with --keep-args.
CREATE VIEW unknown_arg AS
    SELECT file_id, rank, unnest(map_keys(unknown_args)) AS key,
        unnest(map_values(unknown_args)) AS count
    FROM file;

-- Clock of each host against the reference: aligned time = ts_ns - offset_ns. Ranks of one domain
-- share a clock; spread_ns is the median absolute deviation of the samples.
CREATE VIEW clock AS
    SELECT rank, clock_domain AS domain, clock_offset_ns AS offset_ns, clock_spread_ns AS spread_ns,
        clock_samples AS samples, clock_aligned AS aligned, clock_note AS note
    FROM rank WHERE clock_domain IS NOT NULL;

-- What lived at the peak of a memory history, by the stack that allocated it, with the innermost
-- frame that is a Python file outside torch, else the innermost of all. step: in which it lies.
CREATE VIEW memory_at_peak AS
    WITH _place AS (
        SELECT stack_id, first(struct_pack(function, file, line) ORDER BY NOT (
            coalesce(file LIKE '%.py' AND NOT regexp_matches(file, '[/\\]torch[/\\]'), false)
        ), depth) AS frame
        FROM memory_stack GROUP BY stack_id
    ),
    _held AS (
        SELECT rank, file_id, device, stack_id, count(*) AS blocks,
            sum(requested_bytes)::BIGINT AS requested_bytes
        FROM memory_peak_block GROUP BY ALL
    )
    SELECT h.rank, h.file_id, h.device, s.step, p.ts_ns, h.stack_id, h.blocks, h.requested_bytes,
        f.frame.function AS function, f.frame.file AS file, f.frame.line AS line
    FROM _held AS h
    JOIN memory_peak AS p ON p.rank = h.rank AND p.file_id = h.file_id AND p.device = h.device
    LEFT JOIN _place AS f USING (stack_id)
    LEFT JOIN step AS s
        ON s.rank = h.rank AND p.ts_ns >= s.host_start_ns AND p.ts_ns < s.host_end_ns;
