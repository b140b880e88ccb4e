// Prints the nanoseconds of one write of 512 bytes with its fdatasync: sync_cost FILE NUMBER.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static char record[512];

static int pairs(int fd, long number) {
  for (long n = 0; n < number; n++) {
    // The file stays small: 2 MiB.
    if (n % 4096 == 0 && lseek(fd, 0, SEEK_SET) != 0) return 1;
    if (write(fd, record, sizeof record) != sizeof record || fdatasync(fd) != 0) return 1;
  }
  return 0;
}

int main(int count, char **arguments) {
  if (count != 3) return 2;
  int fd = open(arguments[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
  long number = atol(arguments[2]);
  struct timespec begin, end;
  if (fd < 0 || pairs(fd, 10000)) return 1;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  if (pairs(fd, number)) return 1;
  clock_gettime(CLOCK_MONOTONIC, &end);
  double ns = (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
  printf("%.1f\n", ns / (double)number);
  return 0;
}
