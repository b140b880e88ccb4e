/* A test program, unmodified LevelDB code in C: writes records in a random order and reads each of them. */
#include <leveldb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect(int fine, const char* what, const char* why) {
  if (!fine) {
    fprintf(stderr, "FAILED: %s: %s\n", what, why == NULL ? "" : why);
    exit(1);
  }
}

/* Usage: fill DIRECTORY RECORDS SYNC: RECORDS, a power of two, of 1,000 bytes each; every SYNCth write is synced. */
int main(int argc, char** argv) {
  expect(argc == 4, "usage", "fill DIRECTORY RECORDS SYNC");
  long records = atol(argv[2]), sync = atol(argv[3]);
  expect(records > 0 && (records & (records - 1)) == 0 && sync > 0, "usage", "RECORDS is a power of two, SYNC at least 1");
  char value[1000], key[32];
  char* error = NULL;
  leveldb_options_t* options = leveldb_options_create();
  leveldb_options_set_create_if_missing(options, 1);
  leveldb_options_set_compression(options, leveldb_no_compression);
  leveldb_options_set_write_buffer_size(options, 1 << 20);
  leveldb_t* db = leveldb_open(options, argv[1], &error);
  expect(error == NULL, "open", error);
  leveldb_writeoptions_t* how = leveldb_writeoptions_create();
  leveldb_readoptions_t* reads = leveldb_readoptions_create();
  /* An odd factor makes the numbers a permutation. */
  for (long n = 0; n < records; ++n) {
    long number = (n * 40503) & (records - 1);
    int len = snprintf(key, sizeof(key), "%010ld", number);
    memset(value, 'a' + (int)(number % 26), sizeof(value));
    leveldb_writeoptions_set_sync(how, n % sync == sync - 1);
    leveldb_put(db, how, key, (size_t)len, value, sizeof(value), &error);
    expect(error == NULL, "put", error);
  }
  for (long n = 0; n < records; ++n) {
    size_t got = 0;
    int len = snprintf(key, sizeof(key), "%010ld", n);
    char* found = leveldb_get(db, reads, key, (size_t)len, &got, &error);
    expect(error == NULL && found != NULL && got == sizeof(value) && found[0] == 'a' + (int)(n % 26), key, error);
    leveldb_free(found);
  }
  leveldb_close(db);
  return 0;
}
