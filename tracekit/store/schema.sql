-- The store of one run. Times are integer nanoseconds since the Unix epoch, sizes are bytes.
-- The first group of tables is what the files say; the second is derived from it once, at the
-- end of an ingest, and never holds anything that the first group and the definitions do not give.
-- Each table that is not empty takes a block of the file, so what is small lies with its owner, and
-- a view (views.sql) shows it.

-- What the run says of itself: command, exit status, notes such as a synthetic pace.
-- source is the manifest it comes from; rank is null for the whole run.
CREATE TABLE note (
    rank   INTEGER,
    key    VARCHAR NOT NULL,
    value  VARCHAR NOT NULL,
    source VARCHAR NOT NULL
);

CREATE TABLE file (
    file_id INTEGER NOT NULL,
    path    VARCHAR NOT NULL,
    sha256  VARCHAR NOT NULL,
    kind    VARCHAR NOT NULL,          -- trace, run, nvml, gpus, memory
    bytes   BIGINT  NOT NULL,          -- on disk
    rank    INTEGER,
    state   VARCHAR NOT NULL,          -- whole, partial, empty
    events  BIGINT  NOT NULL,          -- rows kept
    start_ns BIGINT,                   -- first and last time in it; null: it holds none
    end_ns   BIGINT,
    is_wide  BOOLEAN NOT NULL,         -- some of its times lie more than a day from the others
    header   MAP(VARCHAR, VARCHAR) NOT NULL, -- every key at the top of a trace but its events: JSON
    unknown_args MAP(VARCHAR, BIGINT) NOT NULL -- keys of args that no column holds, and how often
);

-- What was wrong with a file or an event, and where. Shown beside the figures it touches. Rows
-- without a file come from the derivation and not from a reader.
CREATE TABLE damage (
    file_id     INTEGER,
    rank        INTEGER,
    kind        VARCHAR NOT NULL,
    byte_offset BIGINT,                -- of the decompressed bytes
    count       BIGINT  NOT NULL,
    detail      VARCHAR NOT NULL,
    severity    VARCHAR NOT NULL       -- damage: not what it should be; skipped: used by no figure
);

CREATE TABLE rank (
    rank        INTEGER NOT NULL,
    world_size  INTEGER,
    host        VARCHAR,               -- null: unknown, the rank is its own clock
    local_rank  INTEGER,
    pid         BIGINT,
    backend     VARCHAR,               -- nccl, gloo, ...
    device_kind VARCHAR,               -- cuda, cpu, ...; null: the files do not say
    device_name VARCHAR,
    device_bytes BIGINT,
    device_said VARCHAR,               -- JSON: what the rank says of its device
    evidence    VARCHAR NOT NULL,      -- what times stand on: kernel, operator, none
    schedule    VARCHAR,               -- class of the pipeline schedule, where recorded
    stages      INTEGER,               -- number of virtual stages in the whole pipeline
    microbatches INTEGER,
    capture_state VARCHAR,             -- finished, incomplete: WHY; null without a manifest
    cut_step    INTEGER,               -- of which only a part was recorded: it counts as none
    -- Derived: its GPU, see the table `gpu`; null: unknown, or no telemetry of its host.
    gpu         INTEGER,
    -- Derived: the clock of its host against the reference, see the view `clock`.
    clock_domain    VARCHAR,
    clock_offset_ns BIGINT,
    clock_spread_ns BIGINT,
    clock_samples   INTEGER,
    clock_aligned   BOOLEAN,
    clock_note      VARCHAR
);

-- Mesh coordinates, one row per rank and named dimension.
CREATE TABLE mesh (
    rank  INTEGER NOT NULL,
    dim   VARCHAR NOT NULL,            -- dp, tp, pp, cp, ep or the user's own name
    coord INTEGER NOT NULL,
    size  INTEGER NOT NULL,
    ranks INTEGER[] NOT NULL           -- the ranks along this dimension, through this rank
);

CREATE TABLE process_group (
    rank        INTEGER NOT NULL,      -- the rank whose file lists the group
    name        VARCHAR NOT NULL,
    description VARCHAR,
    size        INTEGER,
    ranks       INTEGER[],
    complete    BOOLEAN NOT NULL,      -- as many members listed as the size says
    dim         VARCHAR                -- mesh dimension, where it is known
);

CREATE TABLE name (
    name_id INTEGER NOT NULL,
    name    VARCHAR NOT NULL USING COMPRESSION ZSTD -- of all texts the most that a run holds
);

CREATE TABLE thread (
    rank      INTEGER NOT NULL,
    thread_id INTEGER NOT NULL,        -- ours: unique within the rank
    pid       VARCHAR NOT NULL,
    tid       VARCHAR NOT NULL,
    name      VARCHAR,
    is_main   BOOLEAN NOT NULL         -- the thread that carries the ProfilerStep marks
);

-- Shapes, types and values that operators were called with: each distinct triple once.
CREATE TABLE signature (
    signature_id INTEGER NOT NULL,
    input_dims   VARCHAR,              -- JSON
    input_types  VARCHAR,              -- JSON
    concrete     VARCHAR               -- JSON
);

-- What the events of one kind, thread and stream of a file have in common. A track may have several
-- rows where a file holds very many.
CREATE TABLE track (
    track_id  INTEGER NOT NULL,
    rank      INTEGER NOT NULL,
    file_id   INTEGER NOT NULL,        -- ids that the writer gave are unique within a file
    cat       VARCHAR NOT NULL,        -- kernel, gpu_memcpy, gpu_memset, cpu_op, annotation,
                                       -- gpu_annotation, runtime, sync, overhead, python, other
    thread_id INTEGER,
    device    INTEGER,                 -- of work on a device
    stream    VARCHAR                  -- the same
);

-- Every complete or instant event that the trace holds, as the view `event` shows it. Within large
-- batches the rows lie track by track, in the order of time: read them with an ORDER BY.
CREATE TABLE slice (
    track_id    INTEGER NOT NULL,
    event_id    INTEGER NOT NULL,      -- thread by thread in time: unique within the rank
    name_id     INTEGER NOT NULL,
    ts_ns       BIGINT  NOT NULL,
    dur_ns      BIGINT  NOT NULL,
    correlation BIGINT,                -- of a launch and what it launched
    external_id BIGINT                 -- of an operator and what it launched
);

-- What only some events have.
CREATE TABLE event_detail (
    rank         INTEGER NOT NULL,
    event_id     INTEGER NOT NULL,
    bytes        BIGINT,               -- of a copy or set
    signature_id INTEGER,
    sequence     BIGINT,               -- autograd sequence number
    forward_thread BIGINT
);

-- The stack of Python functions: ids are the writer's own, unique within a file.
CREATE TABLE python_call (
    rank      INTEGER NOT NULL,
    event_id  INTEGER NOT NULL,
    python_id BIGINT,
    parent_id BIGINT,
    module_id BIGINT
);

-- All args of an event as JSON; only where the ingest was told to keep them.
CREATE TABLE event_args (
    rank     INTEGER NOT NULL,
    event_id INTEGER NOT NULL,
    args     VARCHAR NOT NULL
);

-- Collective metadata as written on kernels and on record_param_comms.
CREATE TABLE comm_args (
    rank       INTEGER NOT NULL,
    event_id   INTEGER NOT NULL,
    operation  VARCHAR,
    group_name VARCHAR,
    group_description VARCHAR,
    group_size INTEGER,
    group_ranks VARCHAR,
    seq        BIGINT,
    in_elems   BIGINT,
    out_elems  BIGINT,
    dtype      VARCHAR,
    src_rank   INTEGER,
    dst_rank   INTEGER
);

-- Links that stand nowhere else: ids are unique within a file and kind.
CREATE TABLE flow (
    rank     INTEGER NOT NULL,
    file_id  INTEGER NOT NULL,
    kind     VARCHAR NOT NULL,         -- fwdbwd, ac2g
    flow_id  BIGINT  NOT NULL,
    is_start BOOLEAN NOT NULL,
    ts_ns    BIGINT  NOT NULL,
    thread_id INTEGER
);

CREATE TABLE memory_event (
    rank        INTEGER NOT NULL,
    file_id     INTEGER NOT NULL,
    ts_ns       BIGINT  NOT NULL,
    ordinal     INTEGER NOT NULL,      -- order in the file: ties in time keep it
    device_type INTEGER,               -- 0 CPU, 1 CUDA, 20 XPU ... (c10::DeviceType)
    device      INTEGER,
    address     UBIGINT,
    bytes       BIGINT,                -- positive: allocated, negative: freed
    total_allocated BIGINT,
    total_reserved  BIGINT
);

-- Exact bytes of the model state, local to the rank (shards), as the collector counted them.
CREATE TABLE model_state (
    rank     INTEGER NOT NULL,
    moment   VARCHAR NOT NULL,         -- start, end (of the captured window)
    category VARCHAR NOT NULL,         -- params, grads, optimizer, padding
    dtype    VARCHAR NOT NULL,
    elements BIGINT  NOT NULL,
    bytes    BIGINT  NOT NULL
);

-- Bytes of model state that come and go within a step.
CREATE TABLE state_change (
    rank     INTEGER NOT NULL,
    category VARCHAR NOT NULL,         -- gathered: unsharded parameters
    ts_ns    BIGINT  NOT NULL,
    live_bytes BIGINT NOT NULL
);

-- Storage that the gradients lived in at the end of a step, before the next step freed it.
CREATE TABLE grad_storage (
    rank       INTEGER NOT NULL,
    step       INTEGER NOT NULL,
    address    UBIGINT NOT NULL,
    bytes      BIGINT  NOT NULL
);

-- Memory snapshots (torch.cuda.memory): what a device's allocator held as each was taken. A row per
-- file and device. requested: what the program asked for; allocated: that rounded up to the blocks
-- that it got (torch.cuda.memory_allocated); active: with what is freed, but still used by a stream.
CREATE TABLE memory_snapshot (
    rank            INTEGER NOT NULL,
    file_id         INTEGER NOT NULL,
    device          INTEGER NOT NULL,  -- as the process numbers it
    ts_ns           BIGINT,            -- of the last event of its history; null: it has none
    requested_bytes BIGINT,            -- null: torch was too old to tell
    allocated_bytes BIGINT NOT NULL,
    active_bytes    BIGINT NOT NULL,
    reserved_bytes  BIGINT NOT NULL,
    entries         BIGINT NOT NULL,   -- of its history
    max_entries     BIGINT,            -- that the history can hold; null: unknown
    left_out        VARCHAR            -- what of it was not as torch writes it; null: nothing
);

CREATE TABLE memory_segment (
    rank       INTEGER NOT NULL,
    file_id    INTEGER NOT NULL,
    device     INTEGER NOT NULL,
    segment    INTEGER NOT NULL,       -- ordinal in the file
    address    UBIGINT NOT NULL,
    bytes      BIGINT  NOT NULL,
    stream     UBIGINT,
    kind       VARCHAR,                -- small, large
    pool       VARCHAR,                -- 0,0: the one that all share
    is_expandable BOOLEAN,
    stack_id   INTEGER
);

CREATE TABLE memory_block (
    rank       INTEGER NOT NULL,
    file_id    INTEGER NOT NULL,
    device     INTEGER NOT NULL,
    segment    INTEGER NOT NULL,
    address    UBIGINT NOT NULL,
    bytes      BIGINT  NOT NULL,
    requested_bytes BIGINT,
    state      VARCHAR NOT NULL,       -- active_allocated, active_awaiting_free, inactive
    stack_id   INTEGER                 -- of its allocation
);

-- The history of a device's allocator, oldest first.
CREATE TABLE memory_trace (
    rank       INTEGER NOT NULL,
    file_id    INTEGER NOT NULL,
    device     INTEGER NOT NULL,
    entry      INTEGER NOT NULL,       -- ordinal
    action     VARCHAR NOT NULL,       -- alloc, free_requested, free_completed, segment_alloc,
                                       -- segment_free, segment_map, segment_unmap, oom, snapshot
    address    UBIGINT,
    bytes      BIGINT  NOT NULL,       -- as requested
    stream     UBIGINT,
    ts_ns      BIGINT,
    stack_id   INTEGER
);

-- Frames of the stacks, as the snapshot lists them: depth 0 is the innermost.
CREATE TABLE memory_stack (
    stack_id INTEGER NOT NULL,
    depth    INTEGER NOT NULL,
    function VARCHAR,
    file     VARCHAR,
    line     BIGINT
);

-- The most that was allocated at once: of a snapshot's history (source: history), and of each step
-- as torch counted it (source: counter). What is null is unknown, and `missing` says why.
CREATE TABLE memory_peak (
    rank            INTEGER NOT NULL,
    source          VARCHAR NOT NULL,
    file_id         INTEGER,           -- of a history
    device          INTEGER,           -- of a history; a counter is of the rank's own device
    step            INTEGER,           -- of a counter
    entry           INTEGER,           -- of a history: after which it was reached; null: before all
    ts_ns           BIGINT,
    requested_bytes BIGINT,            -- of a history, exact
    allocated_bytes BIGINT,            -- of a counter, exact: a history does not tell the rounding
    reserved_bytes  BIGINT,            -- of a history: at that moment; of a counter: its own peak
    at_least_bytes  BIGINT,            -- requested: what a history shows, also where it is not whole
    covers          VARCHAR,           -- of a history: all, or unknown: how much it could hold is
                                       -- not known, so an earlier part may be lost
    missing         VARCHAR
);

-- What lived at the peak of a history: adds up to its requested_bytes.
CREATE TABLE memory_peak_block (
    rank            INTEGER NOT NULL,
    file_id         INTEGER NOT NULL,
    device          INTEGER NOT NULL,
    address         UBIGINT NOT NULL,
    requested_bytes BIGINT  NOT NULL,
    alloc_entry     INTEGER,           -- null: it was there before the history begins
    free_entry      INTEGER,           -- null: it was there at its end
    stack_id        INTEGER            -- of its allocation; null: not told
);

-- Telemetry of the nodes. What NVML does not tell is null, never 0: `gpu.unsupported` says why.
CREATE TABLE gpu (
    host         VARCHAR NOT NULL,
    gpu          INTEGER NOT NULL,     -- NVML's index; MIG devices are numbered on from the last
    uuid         VARCHAR,
    pci_bus_id   VARCHAR,
    name         VARCHAR,
    memory_bytes BIGINT,
    sm_clock_max_mhz INTEGER,
    driver       VARCHAR,
    is_divided   BOOLEAN,              -- into MIG devices
    parent       INTEGER,              -- of a MIG device: the GPU that it is a part of
    mig          INTEGER,              -- of a MIG device: NVML's index within that GPU
    gpu_instance INTEGER,
    compute_instance INTEGER,
    start_ns     BIGINT  NOT NULL,     -- when the sampling began
    interval_ns  BIGINT,               -- as asked for
    lost_ns      BIGINT,               -- when it was found to be lost: it has no later sample
    lost_reason  VARCHAR,
    unsupported  MAP(VARCHAR, VARCHAR) NOT NULL -- columns that are null, at least now and then: why
);

-- PCIe throughput and processes are read once a second, and null (or not there) between.
CREATE TABLE nvml_sample (
    host        VARCHAR NOT NULL,
    gpu         INTEGER NOT NULL,
    ts_ns       BIGINT  NOT NULL,      -- middle of the reading, on the clock of the host's ranks
    utilization BIGINT,                -- percent of the time in which a kernel ran
    memory_utilization BIGINT,         -- percent of the time in which memory was read or written
    memory_used_bytes BIGINT,
    power_mw    BIGINT,
    power_limit_mw BIGINT,
    energy_mj   BIGINT,                -- since the driver was loaded
    sm_clock_mhz BIGINT,
    memory_clock_mhz BIGINT,
    temperature_c BIGINT,
    throttle_reasons BIGINT,           -- bits: nvmlClocksEventReason*
    pcie_tx_bytes_s BIGINT,
    pcie_rx_bytes_s BIGINT,
    nvlink_tx_bytes BIGINT,            -- all links, since the driver was loaded
    nvlink_rx_bytes BIGINT
);

CREATE TABLE nvml_process (
    host       VARCHAR NOT NULL,
    gpu        INTEGER NOT NULL,
    ts_ns      BIGINT  NOT NULL,       -- of the sample
    pid        BIGINT  NOT NULL,       -- as the driver numbers it: in a container perhaps another
    used_bytes BIGINT                  -- null: the driver does not tell
);

-- Derived ---------------------------------------------------------------------------------

-- The windows of a rank tile its captured span: each ends where the next begins.
-- host_* is the ProfilerStep window on the CPU; start_ns and end_ns are the window in which the
-- step's work runs: on the device it begins with the first GPU work that the step launched.
CREATE TABLE step (
    rank          INTEGER NOT NULL,
    step          INTEGER NOT NULL,
    host_start_ns BIGINT  NOT NULL,
    host_end_ns   BIGINT  NOT NULL,
    start_ns      BIGINT  NOT NULL,
    end_ns        BIGINT  NOT NULL
);

-- Events that cannot be true, which no figure may use.
CREATE TABLE quarantine (
    rank     INTEGER NOT NULL,
    event_id INTEGER NOT NULL,
    kind     VARCHAR NOT NULL,         -- impossible time, impossible duration, kernel before its
                                       -- launch
    step     INTEGER                   -- the step that launched it, as far as known
);

-- Work on the rank's device, or on its threads where the run is on the CPU.
CREATE TABLE work (
    rank      INTEGER NOT NULL,
    event_id  INTEGER,                 -- null: a stretch made of several operators
    class     VARCHAR NOT NULL,        -- compute, communication, memory
    start_ns  BIGINT  NOT NULL,
    end_ns    BIGINT  NOT NULL,
    step      INTEGER,                 -- the step that launched it; null: launched in none
    device    INTEGER,
    stream    VARCHAR,
    launch_id INTEGER,                 -- event of the launch; null: unlinked
    launch_ns BIGINT,
    dim       VARCHAR,                 -- of communication: dp, tp, pp, cp, ep, unknown
    operation VARCHAR,                 -- of communication, normalised
    in_action BOOLEAN NOT NULL DEFAULT false -- launched by a pipeline action
);

-- One row per pipeline action: where it was issued, and the time in which its work ran.
CREATE TABLE action (
    rank       INTEGER NOT NULL,
    step       INTEGER,
    kind       VARCHAR NOT NULL,       -- F, B, I, W
    stage      INTEGER NOT NULL,       -- position in the pipeline
    chunk      INTEGER NOT NULL,       -- ordinal of the virtual stage on this position
    microbatch INTEGER NOT NULL,
    pipeline   INTEGER NOT NULL,       -- which replica of the pipeline
    host_start_ns BIGINT NOT NULL,
    host_end_ns   BIGINT NOT NULL,
    start_ns   BIGINT,                 -- null: no work of the action was found
    end_ns     BIGINT
);

-- Point-to-point transfers whose two ends were matched, in order, by (source, destination).
CREATE TABLE transfer (
    src_rank   INTEGER NOT NULL,
    dst_rank   INTEGER NOT NULL,
    ordinal    INTEGER NOT NULL,
    send_event INTEGER NOT NULL,
    recv_event INTEGER NOT NULL,
    send_start_ns BIGINT NOT NULL,     -- on the clock of the source
    recv_start_ns BIGINT NOT NULL,     -- on the clock of the destination
    recv_end_ns   BIGINT NOT NULL
);
