-- Only where EXISTS (FROM _shared)
-- Work whose correlation several processes carry, and that no External id told apart.
INSERT INTO damage
    SELECT NULL, g.rank, 'launch of several processes', NULL, count(*),
        'linked to none: calls of several processes carry its id', 'damage'
    FROM _gpu AS g JOIN _shared USING (file_id, correlation)
    ANTI JOIN _link AS l ON l.rank = g.rank AND l.event_id = g.event_id
    GROUP BY g.rank;
