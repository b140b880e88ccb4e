/* Logs whose synced writes stay fast on a shared drive, in ordinary files or on zoned drives.
 *
 * An ordinary file is the appended bytes, and zeros behind them until furrow_log_close(), which truncates it to the appended bytes. A program finds the end of its log after a crash by
 * its own records, which it reads by furrow_log_reader_open(), and goes on there with furrow_log_open().
 *
 * On a zoned drive (furrow_log_options.drive) paths are those of the file system there, which `furrow fs mkfs` makes. The process holds the drive while it has a log or reader there.
 *
 * A function that returns an int returns 0, or an errno; furrow_log_message() then tells why, in words. All functions may be called by any thread, on one log too, but for close
 * and drop, after which the handle is gone. A log that was opened before a fork belongs to the parent: the child's calls fail with EPERM, but for drop.
 */
#ifndef FURROW_LOG_H
#define FURROW_LOG_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A log of this process. */
typedef struct furrow_log furrow_log;

/* A log that is being read. */
typedef struct furrow_log_reader furrow_log_reader;

/* How writes reach the kernel: by io_uring, each request with its priority; by helper threads with that priority; or by a process of its own, whose file may have the capability
 * CAP_SYS_NICE that the program lacks. */
#define FURROW_LOG_REQUEST 0
#define FURROW_LOG_THREAD 1
#define FURROW_LOG_PROCESS 2

/* A room of no bytes. */
#define FURROW_LOG_NO_ROOM UINT64_MAX

/* Settings. A field of 0 has its default. */
struct furrow_log_options {
  size_t size;     /* sizeof(struct furrow_log_options) */
  int how;         /* FURROW_LOG_REQUEST */
  uint32_t block;  /* bytes of a block: a power of two, 512 to 65536; 4096 */
  uint64_t room;   /* bytes that are zeroed ahead of the log; 16 MiB */
  uint64_t buffer; /* bytes that may be appended and not yet written; 8 MiB */
  const char *writer; /* the program of FURROW_LOG_PROCESS; furrow-prio-writer, looked for in PATH */
  const char *drive;  /* URL of the zoned drive that the log lies on, such as blk:/dev/nvme0n1, with none of the settings above; NULL: an ordinary file */
};

/* Creates a log, and makes its name durable; on a zoned drive the folders of its path too. EEXIST if the file exists. EOPNOTSUPP if the file system has no direct I/O, or is in memory. No ordinary file is left after an error. */
int furrow_log_create(const char *path, const struct furrow_log_options *options, furrow_log **log);

/* Opens a log to go on at byte `end`, where the caller found its last record to end; drops what lies behind, durably: on a zoned drive by a copy of
 * what lies before. EBUSY if the log is open elsewhere for
 * more than a second (on a zoned drive, at all): the lock of a program that was killed may live for a moment. */
int furrow_log_open(const char *path, uint64_t end, const struct furrow_log_options *options, furrow_log **log);

/* Appends bytes, which stay together. Stores where they end in `end`, unless that is NULL. Ends in memory; waits while the buffer is full. */
int furrow_log_append(furrow_log *log, const void *bytes, size_t len, uint64_t *end);

/* Makes all bytes below `upto` durable, and waits for that. After a failed write every append fails, and every sync of bytes above
 * furrow_log_durable(), with the write's errno: open the log again there. */
int furrow_log_sync(furrow_log *log, uint64_t upto);

/* Number of appended bytes. */
uint64_t furrow_log_end(const furrow_log *log);

/* Number of bytes, from the log's begin, that are durable. */
uint64_t furrow_log_durable(const furrow_log *log);

/* 1 if the log's writes were real-time requests when it was opened, and on a zoned drive, whose scheduler never holds logs; 0 without CAP_SYS_NICE, where they are best effort of
 * the highest level. */
int furrow_log_is_real_time(const furrow_log *log);

/* Why no room is zeroed ahead of the log any more, such as a full drive; valid until the thread's next call, in the place of its last message. NULL while there is room, and on a zoned drive. Without room each write may
 * cost a commit of the file system's journal. */
const char *furrow_log_room_failure(const furrow_log *log);

/* Makes everything durable, truncates the file to the appended bytes and frees the handle, also after an error. */
int furrow_log_close(furrow_log *log);

/* Frees the handle and leaves the file as it is. */
void furrow_log_drop(furrow_log *log);

/* Removes a log that nobody writes, durably. ENOENT if there is none. */
int furrow_log_remove(const char *path, const struct furrow_log_options *options);

/* Opens a log for reading. */
int furrow_log_reader_open(const char *path, const struct furrow_log_options *options, furrow_log_reader **reader);

/* Reads `len` bytes at `offset`, and stores the number read in `read`: fewer only at the log's end. */
int furrow_log_reader_read(furrow_log_reader *reader, uint64_t offset, void *bytes, size_t len, size_t *read);

/* Frees the reader. */
void furrow_log_reader_close(furrow_log_reader *reader);

/* The message of the calling thread's last error; valid until its next call. */
const char *furrow_log_message(void);

#ifdef __cplusplus
}
#endif

#endif
