/* A test program in C that has LevelDB within itself and uses the Env of zoned_env.h. */
#include <leveldb/c.h>
#include <stdio.h>
#include <string.h>

#include "zoned_env.h"

/* Usage: static_user URL. Prints the value that the database on the drive has. */
int main(int argc, char** argv) {
  char* error = NULL;
  leveldb_env_t* env = argc == 2 ? furrow_leveldb_create_env(argv[1], &error) : NULL;
  if (env == NULL) {
    fprintf(stderr, "%s\n", error == NULL ? "usage: static_user URL" : error);
    return 1;
  }
  leveldb_options_t* options = leveldb_options_create();
  leveldb_options_set_env(options, env);
  leveldb_t* db = leveldb_open(options, "/some/db", &error);
  if (db == NULL) {
    fprintf(stderr, "%s\n", error);
    return 1;
  }
  size_t len = 0;
  char* value = leveldb_get(db, leveldb_readoptions_create(), "key", 3, &len, &error);
  printf("%.*s\n", (int)len, value == NULL ? "" : value);
  leveldb_close(db);
  leveldb_env_destroy(env);
  return len == strlen("value") ? 0 : 1;
}
