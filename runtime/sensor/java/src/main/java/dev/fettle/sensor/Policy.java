package dev.fettle.sensor;

/** What a list does when its ring is full. */
public enum Policy {
    /** Counts the event as lost and goes on. */
    DROP,
    /** Goes on over the oldest: a flight recorder. */
    OVERWRITE,
    /** Waits until the consumer made room, unless there is none. */
    WAIT
}
