package dev.fettle.rpc;

/** What stubs record. */
public enum Mode {
    /** One event for each call. */
    PERFORMANCE,
    /** An event for each hook besides. */
    CFLOW,
    /** A histogram of durations and a count of failed calls for each method. */
    SCALAR
}
