// A test program that links Furrow and opens a parallel log through parallel_db.h.
#include "parallel_db.h"
#include "work.h"

Status OpenDb(const DBOptions& options, const std::string& name, const Families& families, Handles* handles, DB** db) {
  return furrow::OpenParallel(options, name, families, handles, db);
}

int main(int argc, char** argv) { return Run(argc, argv); }
