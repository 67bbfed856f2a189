-- The mesh dimension that the description of a process group names (torch's DeviceMesh writes
-- mesh_NAME, Megatron-core NAME_PARALLEL_GROUP).
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

-- Operations under one name, whatever the writer calls them.
CREATE MACRO _has(text, part) AS contains(replace(lower(text), '_', ''), part);
CREATE MACRO _operation_of(text) AS
    CASE
        WHEN text IS NULL THEN NULL
        WHEN _has(text, 'allreduce') THEN 'all_reduce'
        WHEN _has(text, 'reducescatter') THEN 'reduce_scatter'
        WHEN _has(text, 'allgather') THEN 'all_gather'
        WHEN _has(text, 'alltoall') THEN 'all_to_all'
        WHEN _has(text, 'broadcast') THEN 'broadcast'
        WHEN _has(text, 'barrier') THEN 'barrier'
        WHEN _has(text, 'sendrecv') THEN 'send_recv'
        WHEN _has(text, 'recv') THEN 'recv'
        WHEN _has(text, 'send') THEN 'send'
        WHEN _has(text, 'gather') THEN 'gather'
        WHEN _has(text, 'scatter') THEN 'scatter'
        WHEN _has(text, 'reduce') THEN 'reduce'
    END;

-- What the args of communication on the device say of it.
CREATE TEMP TABLE _said (
    rank INTEGER, event_id INTEGER, has_operation BOOLEAN, operation VARCHAR, dim VARCHAR
);
