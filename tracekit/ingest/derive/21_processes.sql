-- Only where EXISTS (SELECT rank FROM thread SEMI JOIN (SELECT DISTINCT rank, thread_id FROM event WHERE cat = 'runtime') AS e USING (rank, thread_id) GROUP BY rank HAVING count(DISTINCT pid) > 1)
-- Ids are unique within a process. In a file of several, an id that calls of more than one of them carry
-- links nothing: whose work it is, the trace does not say.
INSERT INTO _shared
    SELECT e.rank, e.file_id, e.correlation
    FROM event AS e JOIN thread AS t USING (rank, thread_id)
    WHERE e.cat = 'runtime' AND e.correlation NOT IN (0, -1)
    GROUP BY e.rank, e.file_id, e.correlation HAVING count(DISTINCT t.pid) > 1;

DELETE FROM _link WHERE (rank, event_id) IN (
    SELECT (g.rank, g.event_id) FROM _gpu AS g JOIN _shared USING (file_id, correlation)
);
