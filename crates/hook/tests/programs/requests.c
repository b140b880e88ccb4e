// Submits requests through libaio, and checks that libaio's function, the requests and the thread's priority are as without the library. The interface of
// libaio and of the kernel is declared here, so that no header is needed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct request {
  uint64_t data;
  uint32_t key;
  int32_t write_flags;
  uint16_t operation;
  uint16_t priority;
  uint32_t descriptor;
  uint64_t buffer, bytes;
  int64_t offset;
  uint64_t reserved;
  uint32_t flags, event_descriptor;
};
struct event {
  uint64_t data, request;
  int64_t result, second;
};
enum { READ = 0, WRITE = 1, DATA_SYNC = 3, GATHER_WRITE = 8, HAS_PRIORITY = 2 };

#ifdef WITHOUT_LIBAIO
// No library that the program is linked with has the function.
__attribute__((weak))
#endif
int io_submit(void *context, long number, struct request **requests);

static int own;
static void *context;
static char block[4096];

static int priority(void) { return (int)syscall(SYS_ioprio_get, 1, 0); }

static void check(int line, int good) {
  if (!good) {
    fprintf(stderr, "line %d: priority %x, own %x, errno %d\n", line, priority(), own, errno);
    _exit(9);
  }
}

// Submits requests; all that was taken must end well. Returns what io_submit returns.
static int submit(int line, struct request *requests, int number) {
  struct request before[200], *pointers[200];
  struct event events[200];
  for (int n = 0; n < number; n++) pointers[n] = &requests[n];
  memcpy(before, requests, sizeof *requests * number);
  errno = 77;
  int taken = io_submit(context, number, pointers);
  check(line, errno == 77 && priority() == own);
  for (int got = 0; got < taken;) {
    int more = (int)syscall(SYS_io_getevents, context, 1, 200, events, NULL);
    check(line, more > 0);
    for (int n = 0; n < more; n++) {
      struct request *of = (struct request *)(uintptr_t)events[n].request;
      check(line, of >= requests && of < requests + taken && events[n].data == of->data && events[n].result >= 0);
      if (of->operation == WRITE) check(line, events[n].result == (int64_t)of->bytes);
    }
    got += more;
  }
  for (int n = 0; n < number; n++) {
    // The kernel writes the key.
    before[n].key = requests[n].key;
    check(line, !memcmp(&before[n], &requests[n], sizeof *requests));
  }
  return taken;
}

static struct request request(int operation, int fd, long bytes, long offset) {
  static uint64_t data;
  return (struct request){.data = ++data, .operation = operation, .descriptor = fd, .buffer = (uintptr_t)block, .bytes = bytes, .offset = offset};
}

int main(int count, char **arguments) {
  if (count < 4) return 2;
  // A request that never went to the kernel has no end to wait for.
  alarm(30);
  if (count > 4 && !strcmp(arguments[4], "unprivileged")) check(__LINE__, setuid(65534) == 0);
  if (count > 4 && !strcmp(arguments[4], "best-effort-3")) syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 3);
  own = priority();
  int log = open(arguments[1], O_RDWR | O_CREAT, 0600), bulk = open(arguments[2], O_RDWR | O_CREAT, 0600);
  int other = open(arguments[3], O_RDWR | O_CREAT, 0600);
  check(__LINE__, syscall(SYS_io_setup, 256, &context) == 0);

  struct iovec parts[2] = {{block, 100}, {block, 200}};
  struct request gathered = request(GATHER_WRITE, log, 2, 512);
  gathered.buffer = (uintptr_t)parts;
  struct request durable = request(WRITE, log, 88, 812);
  durable.write_flags = 2;  // RWF_DSYNC
  struct request sync = request(DATA_SYNC, log, 0, 0);
  sync.buffer = 0;
  struct request mixed[] = {request(WRITE, log, 512, 0),     gathered, durable, sync, request(WRITE, other, 10, 0), request(WRITE, bulk, 4096, 0),
                            request(WRITE, bulk, 4096, 4096), request(READ, log, 512, 0)};
  check(__LINE__, submit(__LINE__, mixed, 8) == 8);

  // A request with a priority of the program's own keeps it.
  struct request chosen = request(WRITE, bulk, 100, 8192);
  chosen.flags = HAS_PRIORITY;
  chosen.priority = 3 << 13;
  check(__LINE__, submit(__LINE__, &chosen, 1) == 1);

  // The first request that the kernel refuses ends the call, or is the call's error.
  struct request refused[] = {request(WRITE, log, 100, 0), request(WRITE, bulk, 100, 0), request(WRITE, 9999, 100, 0), request(WRITE, log, 100, 0)};
  check(__LINE__, submit(__LINE__, refused, 4) == 2);
  check(__LINE__, submit(__LINE__, refused + 2, 2) == -EBADF);
  struct request among_others[] = {request(WRITE, other, 100, 0), request(WRITE, 9999, 100, 0), request(WRITE, log, 100, 0)};
  check(__LINE__, submit(__LINE__, among_others, 3) == 1);
  check(__LINE__, submit(__LINE__, refused, 0) == 0);
  check(__LINE__, io_submit(NULL, 1, (struct request *[]){refused}) == -EINVAL);
  check(__LINE__, io_submit(context, -1, NULL) == -EINVAL);

  // More than the library looks at at once.
  struct request many[130];
  for (int n = 0; n < 130; n++) many[n] = request(WRITE, log, 10, n * 10);
  check(__LINE__, submit(__LINE__, many, 130) == 130);
  return 0;
}
