-- The mesh dimension of each process group: from its description (torch's DeviceMesh writes
-- mesh_NAME, Megatron-core NAME_PARALLEL_GROUP), else from the recorded mesh by its members.
CREATE MACRO _dim_of(text) AS
    CASE
        WHEN text IS NULL THEN NULL
        WHEN regexp_matches(text, 'mesh_([a-z_]*_)?(dp|fsdp|ddp|data|replicate|shard|hsdp)', 'i')
            THEN 'dp'
        WHEN regexp_matches(text, 'mesh_([a-z_]*_)?(tp|tensor|sp)', 'i') THEN 'tp'
        WHEN regexp_matches(text, 'mesh_([a-z_]*_)?(pp|pipe)', 'i') THEN 'pp'
        WHEN regexp_matches(text, 'mesh_([a-z_]*_)?(cp|context|ulysses)', 'i') THEN 'cp'
        WHEN regexp_matches(text, 'mesh_([a-z_]*_)?(ep|expert)', 'i') THEN 'ep'
        WHEN regexp_matches(text, 'TENSOR(_MODEL)?_PARALLEL', 'i') THEN 'tp'
        WHEN regexp_matches(text, 'PIPELINE(_MODEL)?_PARALLEL', 'i') THEN 'pp'
        WHEN regexp_matches(text, 'CONTEXT_PARALLEL', 'i') THEN 'cp'
        WHEN regexp_matches(text, 'DATA_PARALLEL', 'i') THEN 'dp'
        -- Last: EXPERT_DATA_PARALLEL is data parallelism among the copies of an expert.
        WHEN regexp_matches(text, 'EXPERT', 'i') THEN 'ep'
    END;

UPDATE process_group SET dim = _dim_of(description);
UPDATE process_group SET dim = m.dim
FROM (
    -- A mesh of one dimension reuses the default group: its members tell.
    SELECT rank, list_sort(ranks) AS ranks, any_value(_dim_of('mesh_' || dim)) AS dim
    FROM mesh WHERE size > 1 GROUP BY ALL HAVING count(DISTINCT _dim_of('mesh_' || dim)) = 1
) AS m
WHERE process_group.dim IS NULL AND process_group.rank = m.rank
    AND list_sort(process_group.ranks) = m.ranks;

-- Operations under one name, whatever the writer calls them.
CREATE MACRO _operation_of(text) AS
    CASE
        WHEN text IS NULL THEN NULL
        WHEN regexp_matches(text, 'all_?reduce', 'i') THEN 'all_reduce'
        WHEN regexp_matches(text, 'reduce_?scatter', 'i') THEN 'reduce_scatter'
        WHEN regexp_matches(text, 'all_?gather', 'i') THEN 'all_gather'
        WHEN regexp_matches(text, 'all_?to_?all', 'i') THEN 'all_to_all'
        WHEN regexp_matches(text, 'broadcast', 'i') THEN 'broadcast'
        WHEN regexp_matches(text, 'barrier', 'i') THEN 'barrier'
        WHEN regexp_matches(text, 'send_?recv', 'i') THEN 'send_recv'
        WHEN regexp_matches(text, 'recv', 'i') THEN 'recv'
        WHEN regexp_matches(text, 'send', 'i') THEN 'send'
        WHEN regexp_matches(text, 'gather', 'i') THEN 'gather'
        WHEN regexp_matches(text, 'scatter', 'i') THEN 'scatter'
        WHEN regexp_matches(text, 'reduce', 'i') THEN 'reduce'
    END;
