// Writes and syncs files through the C library, and checks after each call that the thread's I/O priority is what it was and errno untouched.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
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

static char block[65536] __attribute__((aligned(4096)));

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

// From here on the kernel answers the system call `number` with `answer`, if the low bits of its fourth argument have one of `flags`; or in any case, if `flags` is 0.
static void filter(int number, unsigned flags, unsigned answer) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, flags, 0, flags ? 1 : 0),
      BPF_STMT(BPF_RET | BPF_K, answer),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof code[0], code};
  check(__LINE__, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static sigjmp_buf jump;
static int handler_fd;
static volatile long handled;

static void on_alarm_jump(int signal) { siglongjmp(jump, 1); }

static void on_alarm_write(int signal) {
  int before = errno;
  write(handler_fd, "x", 1);
  handled++;
  errno = before;
}

static void every(int micros, void (*handler)(int)) {
  signal(SIGALRM, handler);
  struct itimerval time = {{0, micros}, {0, micros}};
  setitimer(ITIMER_REAL, &time, NULL);
}

static void fill(int fd, int mib) {
  for (int at = 0; at < mib * 16; at++) check(__LINE__, write(fd, block, sizeof block) == sizeof block);
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
  } else if (!strcmp(what, "direct")) {
    // Direct writes want aligned memory.
    int fd = open(path, O_RDWR | O_CREAT | O_DIRECT, 0600);
    CALL(write(fd, block, 4096));
    CALL(fcntl(fd, F_SETFL, 0));
    CALL(write(fd, block, 100));
    CALL(fcntl(fd, F_SETFL, O_DIRECT));
    CALL(pwrite(fd, block, 4096, 8192));
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
    // The library asks for the descriptor's file again after a millisecond and a tick of the clock.
    usleep(20000);
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
  } else if (!strcmp(what, "keeps-errors")) {
    // A wait by sync_file_range would take an error of write-back from the program.
    filter(SYS_sync_file_range, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WAIT_AFTER, SECCOMP_RET_KILL_PROCESS);
    if (count > 3) filter(451, 0, SECCOMP_RET_ERRNO | ENOSYS);
    bulk_calls(path, 4);
  } else if (!strcmp(what, "lost")) {
    // The drive has no room, so that write-back fails, and then has. `arguments`: the file that fills it, and a directory on it.
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600), directory = open(arguments[4], O_RDONLY);
    fill(fd, 6);
    syncfs(directory);
    unlink(arguments[3]);
    fill(fd, 6);
    int later = open(path, O_RDWR);
    int first = fsync(later), second = fsync(fd);
    printf("%s %s\n", first ? "failed" : "synced", second ? "failed" : "synced");
  } else if (!strcmp(what, "plugin")) {
    // The plug-in's constructor has a thread that makes its calls first, and waits for it.
    check(__LINE__, dlopen(arguments[3], RTLD_NOW) != NULL);
  } else if (!strcmp(what, "dlerror")) {
    check(__LINE__, dlopen("/nowhere.so", RTLD_NOW) == NULL);
    fsync(write(open(path, O_RDWR | O_CREAT, 0600), "a", 1));
    check(__LINE__, dlerror() != NULL);
  } else if (!strcmp(what, "limited")) {
    // No file may be longer than 8 KiB, and a longer one ends the program.
    struct rlimit limit = {8192, 8192};
    setrlimit(RLIMIT_FSIZE, &limit);
    log_calls(path);
  } else if (!strcmp(what, "jump")) {
    int fd = open(path, O_RDWR | O_CREAT | O_DSYNC, 0600);
    static char large[1 << 20];
    if (!sigsetjmp(jump, 1)) {
      every(3000, on_alarm_jump);
      for (;;) pwrite(fd, large, sizeof large, 0);
    }
    every(0, SIG_IGN);
    pwrite(fd, block, 512, 0);
    check(__LINE__, priority() == own);
    fdatasync(fd);
    check(__LINE__, priority() == own);
  } else if (!strcmp(what, "handler")) {
    // Bulk from a signal handler that interrupts malloc, while a log is active.
    handler_fd = open(arguments[3], O_RDWR | O_CREAT, 0600);
    int log = open(path, O_RDWR | O_CREAT, 0600);
    for (int at = 0; at < 30; at++) pwrite(log, "a", 1, 0), fdatasync(log);
    every(1000, on_alarm_write);
    for (long at = 0; handled < 1000; at++) {
      void *memory[64];
      for (int place = 0; place < 64; place++) memory[place] = malloc(2000 + (at * 37 + place * 911) % 200000);
      for (int place = 0; place < 64; place++) free(memory[place]);
      if (at % 50 == 0) pwrite(log, "a", 1, 0), fdatasync(log);
    }
  } else if (!strcmp(what, "closefrom")) {
    filter(SYS_close_range, 0, SECCOMP_RET_ERRNO | ENOSYS);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    closefrom(3);
    check(__LINE__, fcntl(fd, F_GETFD) == -1);
  } else if (!strcmp(what, "close-range")) {
    struct rusage before, after;
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    getrusage(RUSAGE_SELF, &before);
    close_range(3, ~0u, 0);
    getrusage(RUSAGE_SELF, &after);
    check(__LINE__, after.ru_minflt - before.ru_minflt < 100);
    // The number again, for another file.
    check(__LINE__, fd == (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_WRONLY));
    CALL(write(fd, block, 512));
  } else if (!strcmp(what, "real-time-0")) {
    if (syscall(SYS_ioprio_set, 1, 0, 1 << 13)) return 0;
    own = priority();
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    CALL(write(fd, block, 512));
    CALL(fdatasync(fd));
    check(__LINE__, setuid(65534) == 0);
    fd = open(arguments[3], O_RDWR | O_CREAT, 0600);
    CALL(write(fd, block, 512));
  } else if (!strcmp(what, "no-wait")) {
    // The file is there already, written behind the library's back: ext4 takes such a write if it is direct and needs no room.
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT, 0600);
    for (int at = 0; at < 32; at++) syscall(SYS_write, fd, block, sizeof block);
    syscall(SYS_fsync, fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    syscall(SYS_close, fd);
    fd = open(path, O_RDWR | O_DIRECT);
    for (int at = 0; at < 32; at++) {
      struct iovec part = {block, sizeof block};
      errno = 0;
      check(__LINE__, pwritev2(fd, &part, 1, (off_t)at * sizeof block, RWF_NOWAIT) > 0 || errno == EAGAIN || errno == EOPNOTSUPP);
    }
  } else if (!strcmp(what, "offsets")) {
    // Copies of 64 KiB to where the descriptor's offset is not.
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    off_t to = 1 << 20, at = 0;
    fill(fd, 1);
    fsync(fd);
    for (int part = 0; part < 16; part++) {
      at = part * 65536;
      check(__LINE__, copy_file_range(fd, &at, fd, &to, sizeof block, 0) == sizeof block);
    }
    check(__LINE__, to == 2 << 20 && lseek(fd, 0, SEEK_CUR) == 1 << 20);
    struct iovec part = {block, sizeof block};
    check(__LINE__, pwritev2(fd, &part, 1, 0, RWF_APPEND) == sizeof block);
  } else if (!strcmp(what, "freopen")) {
    // Standard output has no class so far.
    CALL(write(1, "", 0));
    check(__LINE__, freopen(path, "w", stdout) != NULL);
    printf("a line\n");
    fflush(stdout);
    CALL(fsync(1));
  } else if (!strcmp(what, "outside")) {
    log_calls(path);
    check(__LINE__, chroot(arguments[3]) == 0 && chdir("/") == 0);
  } else {
    return 2;
  }
  return 0;
}
