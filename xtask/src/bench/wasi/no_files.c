/* SQLite's access to a system without files: a database in memory opens none. */
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int open_file(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out) {
  return SQLITE_CANTOPEN;
}

static int delete_file(sqlite3_vfs *vfs, const char *name, int sync) { return SQLITE_IOERR_DELETE; }

static int access_file(sqlite3_vfs *vfs, const char *name, int flags, int *out) {
  *out = 0;
  return SQLITE_OK;
}

static int full_path(sqlite3_vfs *vfs, const char *name, int size, char *out) {
  if (strlen(name) >= (size_t)size) return SQLITE_CANTOPEN;
  strcpy(out, name);
  return SQLITE_OK;
}

static int random_bytes(sqlite3_vfs *vfs, int size, char *out) {
  return getentropy(out, size < 256 ? size : 256) ? 0 : size;
}

static int sleep_for(sqlite3_vfs *vfs, int microseconds) { return usleep(microseconds), microseconds; }

static int now(sqlite3_vfs *vfs, sqlite3_int64 *out) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  /* Milliseconds since noon of the first day of the Julian calendar. */
  *out = 210866760000000 + (sqlite3_int64)time.tv_sec * 1000 + time.tv_nsec / 1000000;
  return SQLITE_OK;
}

static int now_as_day(sqlite3_vfs *vfs, double *out) {
  sqlite3_int64 time;
  now(vfs, &time);
  *out = time / 86400000.0;
  return SQLITE_OK;
}

static int last_error(sqlite3_vfs *vfs, int size, char *out) { return 0; }

int sqlite3_os_init(void) {
  static sqlite3_vfs vfs = {
      .iVersion = 2,
      .szOsFile = sizeof(sqlite3_file),
      .mxPathname = 512,
      .zName = "none",
      .xOpen = open_file,
      .xDelete = delete_file,
      .xAccess = access_file,
      .xFullPathname = full_path,
      .xRandomness = random_bytes,
      .xSleep = sleep_for,
      .xCurrentTime = now_as_day,
      .xGetLastError = last_error,
      .xCurrentTimeInt64 = now,
  };
  return sqlite3_vfs_register(&vfs, 1);
}

int sqlite3_os_end(void) { return SQLITE_OK; }
