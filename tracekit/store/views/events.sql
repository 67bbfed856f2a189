-- Events with their names: what `tracekit query` and the TUI show.
CREATE VIEW events AS
    SELECT e.*, n.name, e.ts_ns + e.dur_ns AS end_ns
    FROM event AS e JOIN name AS n USING (name_id);

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
