// The copies of LevelDB in a process: a library can bring one of its own beside the system's.
#pragma once

#include <string>

#include "leveldb/env.h"

namespace furrow {

// A copy of LevelDB.
struct Copy {
  const void* base = nullptr;              // where its object is loaded; null if no copy was found
  std::string file;                        // its object's file
  leveldb::Env* (*default_env)() = nullptr;  // its own Env::Default
  std::string misfit;                      // why its interfaces are not those of this library; empty if they are
};

// The copy that the code at `caller` belongs to, or that its object is linked with.
Copy CopyOf(const void* caller);

}  // namespace furrow
