"""What a pipeline schedule ought to cost, without a trace and without a database.

    schedules    the order of actions per stage that a named schedule prescribes
    replay       start and end of each action, from an order, durations and a latency
    theory       the published closed forms of the pipeline bubble
    recognise    the name of the schedule that an observed order follows

Everything here is plain values in, plain values out: times are integer nanoseconds, ratios are
exact fractions. Wrong arguments raise ValueError with one line.
"""
