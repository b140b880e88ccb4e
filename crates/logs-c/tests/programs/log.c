/* Writes the records of the test to a log: log PATH [DRIVE]. A log on a drive is copied to standard output and removed. With "limited" in the place of a drive the log is an ordinary file
 * that may not grow beyond 1 MiB. Prints what it found wrong. */
#include <errno.h>
#include <furrow_log.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                       \
  do {                                                                    \
    if (!(what)) {                                                        \
      fprintf(stderr, "line %d: %s; %s\n", __LINE__, #what, furrow_log_message()); \
      return 1;                                                           \
    }                                                                     \
  } while (0)

/* Room of 16 MiB does not fit below the limit: the log goes on without. */
static int write_without_room(const char *path) {
  furrow_log *log = NULL;
  uint64_t end;
  signal(SIGXFSZ, SIG_IGN);
  CHECK(furrow_log_create(path, NULL, &log) == 0);
  const char *failure = NULL;
  for (int tries = 0; !failure && tries < 1000; tries++) {
    failure = furrow_log_room_failure(log);
    usleep(10000);
  }
  CHECK(failure != NULL && strstr(failure, "too large") != NULL);
  CHECK(furrow_log_append(log, "record", 6, &end) == 0 && furrow_log_sync(log, end) == 0);
  CHECK(furrow_log_close(log) == 0);
  return 0;
}

int main(int argc, char **argv) {
  furrow_log *log = NULL, *again = NULL;
  CHECK(argc == 2 || argc == 3);
  if (argc == 3 && !strcmp(argv[2], "limited")) return write_without_room(argv[1]);
  const char *drive = argc == 3 ? argv[2] : NULL;
  struct furrow_log_options options = {.size = sizeof options, .block = 512, .room = 65536, .drive = drive};
  const struct furrow_log_options on_drive = {.size = sizeof options, .drive = drive};
  CHECK(furrow_log_create(argv[1], &options, &log) == 0);
  CHECK(furrow_log_open(argv[1], 0, &options, &again) == EBUSY);
  CHECK(strstr(furrow_log_message(), drive ? "writer already" : "one writer") != NULL);
  uint64_t end = 0, wanted = 0;
  for (int n = 0; n < 300; n++) {
    unsigned char record[1000];
    size_t len = 1 + (n * 37) % sizeof record;
    for (size_t i = 0; i < len; i++) record[i] = (n * 7 + i) % 255 + 1;
    CHECK(furrow_log_append(log, record, len, &end) == 0);
    wanted += len;
    CHECK(end == wanted);
    if (n % 3 == 0) CHECK(furrow_log_sync(log, end) == 0 && furrow_log_durable(log) >= end);
  }
  CHECK(furrow_log_end(log) == wanted);
  CHECK(furrow_log_room_failure(log) == NULL);
  pid_t child = fork();
  if (child == 0) {
    int refused = furrow_log_append(log, "x", 1, NULL) == EPERM && furrow_log_sync(log, wanted) == EPERM;
    furrow_log_drop(log);
    _exit(refused ? 0 : 1);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(furrow_log_sync(log, wanted + 1) == EINVAL && strstr(furrow_log_message(), "were appended") != NULL);
  CHECK(furrow_log_close(log) == 0);
  CHECK(furrow_log_create(argv[1], &on_drive, &log) == EEXIST);
  options.size = 3;
  CHECK(furrow_log_open(argv[1], wanted, &options, &log) == EINVAL);
  CHECK(furrow_log_open(argv[1], wanted, &on_drive, &log) == 0);
  CHECK(furrow_log_append(log, "end", 3, NULL) == 0);
  CHECK(furrow_log_append(log, "end", (size_t)-1, NULL) == EINVAL);
  CHECK(furrow_log_close(log) == 0);

  furrow_log_reader *reader = NULL;
  CHECK(furrow_log_reader_open("/no/such/log", &on_drive, &reader) == ENOENT);
  CHECK(furrow_log_reader_open(argv[1], &on_drive, &reader) == 0);
  static char content[1 << 20];
  size_t read = 0;
  CHECK(furrow_log_reader_read(reader, 0, content, sizeof content, &read) == 0 && read == wanted + 3);
  CHECK(memcmp(content + wanted, "end", 3) == 0);
  CHECK(furrow_log_reader_read(reader, wanted + 3, content, 1, &read) == 0 && read == 0);
  CHECK(furrow_log_reader_read(reader, 0, NULL, 1, &read) == EINVAL);
  furrow_log_reader_close(reader);
  if (drive) {
    CHECK(fwrite(content, 1, wanted + 3, stdout) == wanted + 3);
    CHECK(furrow_log_remove(argv[1], &on_drive) == 0);
    CHECK(furrow_log_remove(argv[1], &on_drive) == ENOENT);
  }
  return 0;
}
