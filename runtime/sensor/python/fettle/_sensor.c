/* Sensors for Python: fettle.h behind three types.
 *
 * fettle.h keeps what a thread knows of a sensor in a thread-local variable for each sensor. Sensors of
 * Python are made at run time, so there is one thread-local array for all of them, and a sensor is a place
 * in it. A commit runs with the interpreter's lock held, which makes it neither safe nor unsafe: slots are
 * owned by threads, as in C. What is killed leaves what a C program leaves.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stdlib.h>

#include "fettle.h"
#include "fettle_knob.h"

#define SENSORS_MAX 1024
#define WORDS_MAX 30

static __thread struct fettle_thread threads[SENSORS_MAX];
static int sensors_made;

typedef struct {
    PyObject_HEAD
    struct fettle_sensor sensor;
    char name[FETTLE_NAME_BYTES];
    int index;
} Sensor;

static inline struct fettle_thread *thread_of(const Sensor *self) {
    struct fettle_thread *mine = &threads[self->index];
    if (mine->writer == NULL) mine->writer = &fettle__none;
    return mine;
}

static int copy_name(char *to, const char *name) {
    size_t i;
    for (i = 0; name[i] != '\0'; i++)
        if (name[i] == '/' || i >= FETTLE_NAME_BYTES - 1) {
            PyErr_SetString(PyExc_ValueError, "a sensor's name has at most 63 bytes and no slash");
            return -1;
        }
    for (i = 0; i < FETTLE_NAME_BYTES; i++) to[i] = '\0';
    for (i = 0; name[i] != '\0'; i++) to[i] = name[i];
    return 0;
}

static int fill(Sensor *self, const char *name, uint32_t major, uint32_t minor, uint32_t instance,
                uint32_t kind) {
    if (copy_name(self->name, name) < 0) return -1;
    if (sensors_made == SENSORS_MAX) {
        PyErr_SetString(PyExc_ValueError, "a process can have 1024 sensors made in Python");
        return -1;
    }
    self->index = sensors_made++;
    self->sensor.name = self->name;
    self->sensor.major = major;
    self->sensor.minor = minor;
    self->sensor.instance = instance;
    self->sensor.kind = kind;
    self->sensor.slots = FETTLE_DEFAULT_SLOTS;
    return 0;
}

static int list_init(Sensor *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"name", "major", "minor", "policy", "cell_log2", "ring_log2", "slots",
                            "instance", NULL};
    const char *name;
    unsigned int major, minor, policy = FETTLE_DROP, cell = FETTLE_DEFAULT_CELL_LOG2;
    unsigned int ring = FETTLE_DEFAULT_RING_LOG2, slots = FETTLE_DEFAULT_SLOTS, instance = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sII|IIIII", names, &name, &major, &minor, &policy,
                                     &cell, &ring, &slots, &instance))
        return -1;
    if (policy > FETTLE_WAIT || cell < 4 || cell > 8 || ring < 12 || ring > 30 || slots < 1 ||
        slots > FETTLE_SLOTS_MAX) {
        PyErr_SetString(PyExc_ValueError,
                        "policy is DROP, OVERWRITE or WAIT, cell_log2 4 to 8, ring_log2 12 to 30, "
                        "slots 1 to 256");
        return -1;
    }
    if (fill(self, name, major, minor, instance, FETTLE_KIND_LIST) < 0) return -1;
    self->sensor.policy = policy;
    self->sensor.cell_log2 = cell;
    self->sensor.ring_log2 = ring;
    self->sensor.slots = slots;
    return 0;
}

static int sum_init(Sensor *self, PyObject *args, PyObject *kwargs, uint32_t kind) {
    static char *names[] = {"name", "major", "minor", "instance", NULL};
    const char *name;
    unsigned int major, minor, instance = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sII|I", names, &name, &major, &minor, &instance))
        return -1;
    return fill(self, name, major, minor, instance, kind);
}

static int scalar_init(Sensor *self, PyObject *args, PyObject *kwargs) {
    return sum_init(self, args, kwargs, FETTLE_KIND_SCALAR);
}

static int histogram_init(Sensor *self, PyObject *args, PyObject *kwargs) {
    return sum_init(self, args, kwargs, FETTLE_KIND_HISTOGRAM);
}

/* Whether FETTLE_SENSORS asks for sensors and there is room; makes the sensor at first. */
static PyObject *enabled(Sensor *self, void *closure) {
    (void)closure;
    return PyBool_FromLong(fettle__writer(&self->sensor, thread_of(self)) != NULL);
}

static int word_of(PyObject *number, uint64_t *word) {
    *word = PyLong_AsUnsignedLongLongMask(number);
    return *word == (uint64_t)-1 && PyErr_Occurred() ? -1 : 0;
}

/* commit(event, words): words is a list or a tuple of numbers, which are cut to 64 bits. A list that
 * waits for its consumer lets other threads of Python run meanwhile. */
static PyObject *commit(Sensor *self, PyObject *args) {
    uint64_t words[WORDS_MAX];
    unsigned int event;
    PyObject *sequence = NULL;
    Py_ssize_t n = 0, i;
    if (!PyArg_ParseTuple(args, "I|O", &event, &sequence)) return NULL;
    if (sequence != NULL && PyList_Check(sequence)) {
        n = PyList_Size(sequence);
        if (n > WORDS_MAX) n = WORDS_MAX;
        for (i = 0; i < n; i++)
            if (word_of(PyList_GetItem(sequence, i), &words[i]) < 0) return NULL;
    } else if (sequence != NULL && PyTuple_Check(sequence)) {
        n = PyTuple_Size(sequence);
        if (n > WORDS_MAX) n = WORDS_MAX;
        for (i = 0; i < n; i++)
            if (word_of(PyTuple_GetItem(sequence, i), &words[i]) < 0) return NULL;
    } else if (sequence != NULL) {
        PyErr_SetString(PyExc_TypeError, "words are a list or a tuple of numbers");
        return NULL;
    }
    if (self->sensor.policy == FETTLE_WAIT) {
        Py_BEGIN_ALLOW_THREADS
        fettle_commit(&self->sensor, thread_of(self), event, words, (unsigned)n);
        Py_END_ALLOW_THREADS
    } else {
        fettle_commit(&self->sensor, thread_of(self), event, words, (unsigned)n);
    }
    Py_RETURN_NONE;
}

static PyObject *add(Sensor *self, PyObject *number) {
    uint64_t word;
    if (word_of(number, &word) < 0) return NULL;
    fettle_add(&self->sensor, thread_of(self), word);
    Py_RETURN_NONE;
}

static PyObject *set(Sensor *self, PyObject *number) {
    uint64_t word;
    if (word_of(number, &word) < 0) return NULL;
    fettle_set(&self->sensor, thread_of(self), word);
    Py_RETURN_NONE;
}

static PyObject *record(Sensor *self, PyObject *number) {
    uint64_t word;
    if (word_of(number, &word) < 0) return NULL;
    fettle_record(&self->sensor, thread_of(self), word);
    Py_RETURN_NONE;
}

static PyGetSetDef getters[] = {
    {"enabled", (getter)enabled, NULL, "Whether events are taken", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef list_methods[] = {
    {"commit", (PyCFunction)commit, METH_VARARGS, "commit(event, words): commits an event"},
    {NULL, NULL, 0, NULL},
};
static PyMethodDef scalar_methods[] = {
    {"add", (PyCFunction)add, METH_O, "add(delta)"},
    {"set", (PyCFunction)set, METH_O, "set(level)"},
    {NULL, NULL, 0, NULL},
};
static PyMethodDef histogram_methods[] = {
    {"record", (PyCFunction)record, METH_O, "record(value): counts a value"},
    {NULL, NULL, 0, NULL},
};

/* A sensor exists as long as its process: threads have what belongs to it. So its object is never freed,
 * even if nothing refers to it any more. */
static void keep(PyObject *self) { (void)self; }

#define TYPE(kind, text)                                              \
    static PyType_Slot kind##_slots[] = {                             \
        {Py_tp_doc, text},                                            \
        {Py_tp_new, PyType_GenericNew},                               \
        {Py_tp_init, kind##_init},                                    \
        {Py_tp_dealloc, keep},                                        \
        {Py_tp_methods, kind##_methods},                              \
        {Py_tp_getset, getters},                                      \
        {0, NULL},                                                    \
    };                                                                \
    static PyType_Spec kind##_spec = {"fettle." #kind, sizeof(Sensor), 0, Py_TPFLAGS_DEFAULT, kind##_slots}

TYPE(list, "A list of events");
TYPE(scalar, "A level that is set, plus all that was added");
TYPE(histogram, "How often each magnitude occurred");

/* A knob has a page of its own memory, over which its file is mapped. */
typedef struct {
    PyObject_HEAD
    struct fettle_knob *knob;
    char name[FETTLE_NAME_BYTES];
} Knob;

static int knob_init(Knob *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"name", "major", "minor", "default", "least", "greatest", "instance", NULL};
    const char *name;
    unsigned int major, minor, instance = 0;
    long long by_default, least, greatest;
    struct fettle_knob *knob;
    void *memory = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sIILLL|I", names, &name, &major, &minor, &by_default,
                                     &least, &greatest, &instance))
        return -1;
    if (self->knob != NULL) {
        PyErr_SetString(PyExc_ValueError, "a knob is made once");
        return -1;
    }
    if (least == FETTLE_KNOB_UNOPENED || by_default < least || by_default > greatest) {
        PyErr_SetString(PyExc_ValueError, "a knob's default is between its least and its greatest value");
        return -1;
    }
    if (copy_name(self->name, name) < 0) return -1;
    /* Whole pages: what is behind it must not be replaced with it. */
    if (posix_memalign(&memory, 4096, (sizeof *knob + 4095) / 4096 * 4096) != 0) {
        PyErr_NoMemory();
        return -1;
    }
    knob = memory;
    *knob = (struct fettle_knob){{FETTLE_KNOB_UNOPENED, {0}, 0, 0, 0, 0, 0, 0, {0}},
                                 {self->name, major, minor, instance, FETTLE_KIND_KNOB, 0, 1, 0, 0, 0, 0, NULL},
                                 by_default, least, greatest, NULL, 0};
    self->knob = knob;
    return 0;
}

/* The value: a call of a function, and one load in it. The first one makes the knob's file. */
static PyObject *knob_get(Knob *self, PyObject *nothing) {
    (void)nothing;
    if (self->knob == NULL) {
        PyErr_SetString(PyExc_ValueError, "this knob was not made");
        return NULL;
    }
    return PyLong_FromLongLong(fettle_value(self->knob));
}

static PyMethodDef knob_methods[] = {
    {"get", (PyCFunction)knob_get, METH_NOARGS, "get(): the value, which others may have set"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot knob_slots[] = {
    {Py_tp_doc, "A number that others set"},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, knob_init},
    {Py_tp_dealloc, keep},
    {Py_tp_methods, knob_methods},
    {0, NULL},
};
static PyType_Spec knob_spec = {"fettle.knob", sizeof(Knob), 0, Py_TPFLAGS_DEFAULT, knob_slots};

static PyObject *tsc(PyObject *module, PyObject *nothing) {
    (void)module;
    (void)nothing;
    return PyLong_FromUnsignedLongLong(__builtin_ia32_rdtsc());
}

static PyMethodDef functions[] = {
    {"tsc", tsc, METH_NOARGS, "The processor's time-stamp counter, the clock of all sensors"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "fettle._sensor", NULL, -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__sensor(void) {
    PyObject *made = PyModule_Create(&module);
    if (made == NULL) return NULL;
    PyModule_AddObject(made, "List", PyType_FromSpec(&list_spec));
    PyModule_AddObject(made, "Scalar", PyType_FromSpec(&scalar_spec));
    PyModule_AddObject(made, "Histogram", PyType_FromSpec(&histogram_spec));
    PyModule_AddObject(made, "Knob", PyType_FromSpec(&knob_spec));
    return made;
}
