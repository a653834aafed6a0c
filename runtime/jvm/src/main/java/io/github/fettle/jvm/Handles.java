package io.github.fettle.jvm;

import java.util.ArrayList;
import java.util.List;

/** Numbers by which a guest keeps Java objects, until it or Java releases them. */
public final class Handles {
    private final List<Object> objects = new ArrayList<>();

    Handles() {
        objects.add(null); // 0 is null
    }

    /** A number for an object; 0 for null. Each call makes another one. */
    public synchronized int add(Object object) {
        if (object == null) {
            return 0;
        }
        for (int i = 1; i < objects.size(); i++) {
            if (objects.get(i) == null) {
                objects.set(i, object);
                return i;
            }
        }
        objects.add(object);
        return objects.size() - 1;
    }

    /**
     * The object of a number.
     *
     * @throws IllegalArgumentException if the guest made the number up or released it
     */
    public synchronized Object get(int handle) {
        if (handle == 0) {
            return null;
        }
        Object object = handle > 0 && handle < objects.size() ? objects.get(handle) : null;
        if (object == null) {
            throw new IllegalArgumentException("no object has the handle " + handle);
        }
        return object;
    }

    public synchronized void release(int handle) {
        if (handle > 0 && handle < objects.size()) {
            objects.set(handle, null);
        }
    }
}
