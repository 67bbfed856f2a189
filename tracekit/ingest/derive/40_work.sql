-- What ran on the device.
CREATE TEMP TABLE _comm_name AS
    SELECT name_id, _operation_of(name) AS operation FROM _communication_name;

-- Steps of a rank never overlap, so the last that began before a launch is the only one to look at.
CREATE TEMP TABLE _launched_in AS
    SELECT l.rank, l.event_id, l.launch_id, l.launch_ns,
        CASE WHEN l.launch_ns < h.host_end_ns THEN h.step END AS step
    FROM _link AS l
    ASOF LEFT JOIN (FROM _host_step WHERE host_start_ns < host_end_ns) AS h
        ON h.rank = l.rank AND l.launch_ns >= h.host_start_ns;

INSERT INTO work BY NAME
    SELECT g.rank, g.event_id,
        CASE
            WHEN g.cat <> 'kernel' THEN 'memory'
            WHEN c.name_id IS NOT NULL OR a.has_operation THEN 'communication'
            ELSE 'compute'
        END AS class,
        g.ts_ns AS start_ns, g.ts_ns + g.dur_ns AS end_ns,
        l.step, g.device, g.stream, l.launch_id, l.launch_ns,
        -- RCCL's generic kernel and the SendRecv kernel of an all-to-all say less than the args.
        CASE WHEN class = 'communication' THEN coalesce(a.operation, c.operation) END AS operation,
        CASE WHEN class = 'communication' THEN
            coalesce(a.dim, CASE WHEN coalesce(a.operation, c.operation) IN ('send', 'recv') THEN 'pp' END, 'unknown')
        END AS dim
    FROM _gpu AS g
    LEFT JOIN _launched_in AS l ON l.rank = g.rank AND l.event_id = g.event_id
    LEFT JOIN _comm_name AS c ON g.name_id = c.name_id
    LEFT JOIN _said AS a ON a.rank = g.rank AND a.event_id = g.event_id
    ANTI JOIN quarantine AS q ON q.rank = g.rank AND q.event_id = g.event_id
    ORDER BY g.rank, g.event_id;

UPDATE rank SET evidence = CASE
    WHEN rank IN (SELECT rank FROM work) THEN 'kernel'
    WHEN device_kind = 'cpu' THEN 'operator'
    ELSE 'none'
END;
