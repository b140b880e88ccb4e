// Stands for libaio: tells with which priority and how many requests its function is called, and makes the system call.
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int io_submit(void *context, long number, void **requests) {
  int before = errno;
  dprintf(2, "%lx:%ld\n", syscall(SYS_ioprio_get, 1, 0), number);
  long result = syscall(SYS_io_submit, context, number, requests);
  int error = errno;
  errno = before;
  return result < 0 ? -error : (int)result;
}
