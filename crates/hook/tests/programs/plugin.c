// A plug-in whose constructor starts a thread and waits for it. The thread's calls are the first ones of the process.
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

static void *thread(void *unused) {
  int fd = open("/dev/null", O_RDWR);
  fdatasync(fd);
  write(fd, "a", 1);
  close(fd);
  return unused;
}

__attribute__((constructor)) static void start(void) {
  pthread_t started;
  pthread_create(&started, 0, thread, 0);
  pthread_join(started, 0);
}
