/* Writes the records of the test to a log: log.c PATH. Prints what it found wrong. */
#include <errno.h>
#include <furrow_log.h>
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

int main(int argc, char **argv) {
  furrow_log *log = NULL, *again = NULL;
  struct furrow_log_options options = {.size = sizeof options, .block = 512, .room = 65536};
  CHECK(argc == 2);
  CHECK(furrow_log_create(argv[1], &options, &log) == 0);
  CHECK(furrow_log_open(argv[1], 0, &options, &again) == EBUSY);
  CHECK(strstr(furrow_log_message(), "one writer") != NULL);
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
  CHECK(furrow_log_create(argv[1], NULL, &log) == EEXIST);
  options.size = 3;
  CHECK(furrow_log_open(argv[1], wanted, &options, &log) == EINVAL);
  CHECK(furrow_log_open(argv[1], wanted, NULL, &log) == 0);
  CHECK(furrow_log_append(log, "end", 3, NULL) == 0);
  CHECK(furrow_log_append(log, "end", (size_t)-1, NULL) == EINVAL);
  CHECK(furrow_log_close(log) == 0);
  return 0;
}
