package io.github.fettle.jvm;

import java.lang.reflect.RecordComponent;
import java.util.Objects;

/** What a record has from Java's compiler, for records that the translator writes. */
public final class Records {
    private Records() {}

    public static String toString(Record record) {
        StringBuilder text = new StringBuilder(record.getClass().getSimpleName()).append('[');
        String separator = "";
        for (RecordComponent component : record.getClass().getRecordComponents()) {
            text.append(separator).append(component.getName()).append('=');
            text.append(value(record, component));
            separator = ", ";
        }
        return text.append(']').toString();
    }

    public static int hashCode(Record record) {
        int hash = 0;
        for (RecordComponent component : record.getClass().getRecordComponents()) {
            hash = 31 * hash + Objects.hashCode(value(record, component));
        }
        return hash;
    }

    public static boolean equals(Record record, Object other) {
        if (other == null || other.getClass() != record.getClass()) {
            return false;
        }
        for (RecordComponent component : record.getClass().getRecordComponents()) {
            Object a = value(record, component);
            if (!Objects.equals(a, value((Record) other, component))) {
                return false;
            }
        }
        return true;
    }

    static Object value(Record record, RecordComponent component) {
        try {
            return component.getAccessor().invoke(record);
        } catch (ReflectiveOperationException e) {
            throw new IllegalArgumentException(record.getClass() + " can't be read", e);
        }
    }
}
