/* A test program that is linked with LevelDB's archive. */
#include <leveldb/c.h>
#include <stdio.h>

int main(void) {
  printf("%d.%d runs\n", leveldb_major_version(), leveldb_minor_version());
  leveldb_options_t* options = leveldb_options_create();
  char* error = NULL;
  leveldb_t* db = leveldb_open(options, "/nowhere", &error);
  return db == NULL ? 0 : 1;
}
