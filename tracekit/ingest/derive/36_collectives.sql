-- Only where EXISTS (FROM comm_args)
-- What the args of communication on the device say of it.
INSERT INTO _said BY NAME
    WITH _kinds AS (SELECT DISTINCT rank, operation, group_name, group_description FROM comm_args),
    _groups AS (SELECT rank, name, min(dim) AS dim FROM process_group GROUP BY rank, name),
    _answers AS (
        SELECT k.*, _operation_of(k.operation) AS normal_operation,
            coalesce(g.dim, _dim_of(k.group_description)) AS dim
        FROM _kinds AS k
        LEFT JOIN _groups AS g ON g.rank = k.rank AND g.name = k.group_name
    )
    SELECT a.rank, a.event_id, a.operation IS NOT NULL AS has_operation,
        n.normal_operation AS operation, n.dim
    FROM comm_args AS a
    SEMI JOIN _gpu AS g ON g.rank = a.rank AND g.event_id = a.event_id
    JOIN _answers AS n ON n.rank = a.rank
        AND n.operation IS NOT DISTINCT FROM a.operation
        AND n.group_name IS NOT DISTINCT FROM a.group_name
        AND n.group_description IS NOT DISTINCT FROM a.group_description;
