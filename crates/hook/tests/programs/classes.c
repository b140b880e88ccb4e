// Writes and syncs files through the C library, and checks after each call that the thread's I/O priority is what it was and errno untouched.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int own;

static int priority(void) { return (int)syscall(SYS_ioprio_get, 1, 0); }

static void check(int line, int good) {
  if (!good) {
    fprintf(stderr, "line %d: priority %x, own %x, errno %d\n", line, priority(), own, errno);
    _exit(9);
  }
}

// A call that must succeed, leave errno, and leave the thread's priority.
#define CALL(call) (errno = 77, check(__LINE__, (call) >= 0 && errno == 77 && priority() == own))

static char block[65536];

static long long now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

static void log_calls(const char *path) {
  int fd = open(path, O_RDWR | O_CREAT | O_APPEND, 0600);
  struct iovec parts[2] = {{block, 100}, {block, 200}};
  CALL(write(fd, block, 512));
  CALL(fdatasync(fd));
  CALL(writev(fd, parts, 2));
  CALL(fsync(fd));
  int copy = dup(fd);
  CALL(write(copy, block, 1000));
  CALL(close(fd));
  CALL(fsync(copy));
  int high = fcntl(copy, F_DUPFD, 100);
  check(__LINE__, high >= 100);
  CALL(close(copy));
  CALL(write(high, block, 24));
  CALL(dup2(high, 50));
  CALL(close(high));
  CALL(fdatasync(50));
  CALL(close(50));
}

static void bulk_calls(const char *path, int mib) {
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  for (int at = 0; at < mib * 16; at++) CALL(pwrite(fd, block, sizeof block, (off_t)at * sizeof block));
  CALL(fsync(fd));
  CALL(close(fd));
}

int main(int count, char **arguments) {
  const char *what = arguments[1];
  if (count > 3 && !strcmp(arguments[3], "best-effort-3")) syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 3);
  own = priority();
  const char *path = arguments[2];
  if (!strcmp(what, "log")) {
    log_calls(path);
  } else if (!strcmp(what, "synced")) {
    int fd = open(path, O_WRONLY | O_CREAT | O_DSYNC, 0600);
    CALL(pwrite(fd, block, 512, 0));
    CALL(pwritev2(fd, &(struct iovec){block, 512}, 1, 512, 0));
  } else if (!strcmp(what, "bulk")) {
    bulk_calls(path, 4);
  } else if (!strcmp(what, "fortified")) {
    volatile int flags = O_RDWR;
    close(creat(path, 0600));
    // With _FORTIFY_SOURCE and without a mode, this is __open_2.
    int fd = open(path, flags);
    CALL(write(fd, block, 512));
    CALL(fsync(fd));
  } else if (!strcmp(what, "inherited")) {
    // Descriptor 7 was opened before this program began.
    CALL(write(7, block, 512));
    CALL(fsync(7));
  } else if (!strcmp(what, "exec")) {
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT, 0600);
    syscall(SYS_dup2, fd, 7);
    execl(arguments[0], arguments[0], "inherited", path, NULL);
  } else if (!strcmp(what, "stream")) {
    FILE *stream = fopen(path, "w");
    for (int at = 0; at < 32; at++) check(__LINE__, fwrite(block, 1, sizeof block, stream) == sizeof block);
    fflush(stream);
    CALL(fsync(fileno(stream)));
    fclose(stream);
    // The descriptor's number again, for a file without a class.
    int fd = open("/dev/null", O_WRONLY);
    CALL(write(fd, block, 512));
  } else if (!strcmp(what, "fork")) {
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    CALL(write(fd, block, 100));
    if (fork() == 0) {
      CALL(write(fd, block, 200));
      CALL(fsync(fd));
      _exit(0);
    }
    int status;
    wait(&status);
    check(__LINE__, status == 0);
    CALL(fsync(fd));
  } else if (!strcmp(what, "vfork")) {
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (vfork() == 0) {
      close(fd);
      _exit(0);
    }
    wait(NULL);
    CALL(write(fd, block, 100));
  } else if (!strcmp(what, "reused")) {
    // The log's descriptor is closed behind the library's back, and its number is a pipe's and then another file's.
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    CALL(write(fd, block, 100));
    syscall(SYS_close, fd);
    int ends[2];
    check(__LINE__, pipe(ends) == 0 && (ends[0] == fd || ends[1] == fd));
    CALL(write(ends[1], block, 10));
    check(__LINE__, write(ends[0], block, 10) == -1 && errno == EBADF);
  } else if (!strcmp(what, "errors")) {
    int fd = open(path, O_RDONLY | O_CREAT, 0600);
    check(__LINE__, write(fd, block, 10) == -1 && errno == EBADF && priority() == own);
    check(__LINE__, write(-1, block, 10) == -1 && errno == EBADF);
    check(__LINE__, fsync(1 << 20) == -1 && errno == EBADF);
    check(__LINE__, open("/nowhere/a.log", O_RDWR) == -1 && errno == ENOENT);
  } else if (!strcmp(what, "unprivileged")) {
    // Another user has no CAP_SYS_NICE.
    check(__LINE__, setuid(65534) == 0);
    log_calls(path);
    bulk_calls(arguments[3], 1);
  } else if (!strcmp(what, "synced-for")) {
    // A log that is synced each millisecond.
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    long long end = now_ms() + atoi(arguments[3]);
    while (now_ms() < end) {
      CALL(pwrite(fd, block, 512, 0));
      CALL(fdatasync(fd));
      usleep(1000);
    }
  } else if (!strcmp(what, "bulk-for")) {
    // Bulk as fast as it goes.
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    long long end = now_ms() + atoi(arguments[3]), longest = 0;
    for (int at = 0; now_ms() < end; at++) {
      long long before = now_ms();
      CALL(pwrite(fd, block, sizeof block, (off_t)(at % 1024) * sizeof block));
      long long took = now_ms() - before;
      if (took > longest) longest = took;
    }
    printf("%lld\n", longest);
  } else {
    return 2;
  }
  return 0;
}
