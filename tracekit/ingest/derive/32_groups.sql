-- Only where EXISTS (FROM process_group)
-- The mesh dimension of each process group: from its description, else from the recorded mesh.
UPDATE process_group SET dim = _dim_of(description);

-- A group whose description says nothing: the recorded mesh tells by its members.
UPDATE process_group SET dim = m.dim
FROM (
    -- A mesh of one dimension reuses the default group: its members tell.
    SELECT rank, list_sort(ranks) AS ranks, any_value(_dim_of('mesh_' || dim)) AS dim
    FROM mesh WHERE size > 1 GROUP BY ALL HAVING count(DISTINCT _dim_of('mesh_' || dim)) = 1
) AS m
WHERE process_group.dim IS NULL AND process_group.rank = m.rank
    AND list_sort(process_group.ranks) = m.ranks;
