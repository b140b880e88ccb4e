/* A test program, unmodified LevelDB code in C: writes synced batches, and checks them after it was killed. */
#include <leveldb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void expect(int fine, const char* what, const char* why) {
  if (!fine) {
    fprintf(stderr, "FAILED: %s: %s\n", what, why == NULL ? "" : why);
    _exit(1);
  }
}

/* The value of the number `n`: as long as a few hundred bytes, different for each. */
static size_t make_value(long n, char* into, size_t size) {
  int head = snprintf(into, size, "%ld:", n);
  size_t len = 100 + (size_t)(n % 400);
  memset(into + head, 'a' + (int)(n % 26), len - (size_t)head);
  return len;
}

static void check(leveldb_t* db, char side, long n, const char* value, size_t len) {
  char key[32];
  char* error = NULL;
  size_t got = 0;
  leveldb_readoptions_t* options = leveldb_readoptions_create();
  int key_len = snprintf(key, sizeof(key), "%c%08ld", side, n);
  char* found = leveldb_get(db, options, key, (size_t)key_len, &got, &error);
  expect(error == NULL, key, error);
  expect(found != NULL, key, "is missing");
  expect(got == len && memcmp(found, value, len) == 0, key, "has another value");
  leveldb_free(found);
  leveldb_readoptions_destroy(options);
}

/* Usage: synced DIRECTORY ACKNOWLEDGED: checks the numbers below ACKNOWLEDGED, then writes from there on until it is killed. Prints
   each number that was acknowledged. Each number is a batch of two records. */
int main(int argc, char** argv) {
  expect(argc == 3, "usage", "synced DIRECTORY ACKNOWLEDGED");
  long from = atol(argv[2]);
  char value[600];
  char* error = NULL;
  leveldb_options_t* options = leveldb_options_create();
  leveldb_options_set_create_if_missing(options, 1);
  leveldb_options_set_write_buffer_size(options, 64 << 10);
  leveldb_options_set_max_file_size(options, 1 << 20);
  leveldb_t* db = leveldb_open(options, argv[1], &error);
  expect(error == NULL, "open", error);
  for (long n = 0; n < from; ++n) {
    size_t len = make_value(n, value, sizeof(value));
    check(db, 'a', n, value, len);
    check(db, 'b', n, value, len);
  }
  leveldb_writeoptions_t* synced = leveldb_writeoptions_create();
  leveldb_writeoptions_set_sync(synced, 1);
  for (long n = from;; ++n) {
    char key[32];
    size_t len = make_value(n, value, sizeof(value));
    leveldb_writebatch_t* batch = leveldb_writebatch_create();
    for (const char* side = "ab"; *side != '\0'; ++side) {
      int key_len = snprintf(key, sizeof(key), "%c%08ld", *side, n);
      leveldb_writebatch_put(batch, key, (size_t)key_len, value, len);
    }
    leveldb_write(db, synced, batch, &error);
    expect(error == NULL, "write", error);
    leveldb_writebatch_destroy(batch);
    int printed = snprintf(value, sizeof(value), "%ld\n", n);
    expect(write(1, value, (size_t)printed) == printed, "stdout", "is closed");
  }
}
