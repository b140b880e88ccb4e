#include "copies.h"

#include <dlfcn.h>

#include <cstdio>

#include "leveldb/db.h"

namespace furrow {

namespace {

constexpr char kDefault[] = "_ZN7leveldb3Env7DefaultEv";
// A function of Env with the std::string that this library was compiled with. A copy with the old std::string lacks it.
constexpr char kTakesString[] =
    "_ZN7leveldb3Env17NewAppendableFileERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPPNS_12WritableFileE";

// The symbol in `object` or in one that it is linked with; null if there is none.
void* SymbolOf(const Dl_info& object, const char* symbol) {
  void* handle = dlopen(object.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) {
    return nullptr;
  }
  void* found = dlsym(handle, symbol);
  dlclose(handle);  // the object stays loaded
  return found;
}

// True if `symbol` lies in this library.
bool IsOwn(const void* symbol) {
  Dl_info own;
  Dl_info object;
  return dladdr(kDefault, &own) != 0 && dladdr(symbol, &object) != 0 && own.dli_fbase == object.dli_fbase;
}

// Why the copy in `object` does not fit this library; empty if it fits.
std::string Misfit(const Dl_info& object) {
  using Version = int();
  auto* major = reinterpret_cast<Version*>(SymbolOf(object, "leveldb_major_version"));
  auto* minor = reinterpret_cast<Version*>(SymbolOf(object, "leveldb_minor_version"));
  if (major == nullptr || minor == nullptr) {
    return "is a LevelDB that tells no version";
  }
  char text[96];
  if (major() != leveldb::kMajorVersion || minor() != leveldb::kMinorVersion) {
    snprintf(text, sizeof(text), "is LevelDB %d.%d, and Furrow's library is for %d.%d", major(), minor(),
             leveldb::kMajorVersion, leveldb::kMinorVersion);
    return text;
  }
  if (SymbolOf(object, kTakesString) == nullptr) {
    return "is a LevelDB with the old std::string";
  }
  return "";
}

}  // namespace

Copy CopyOf(const void* caller) {
  Copy copy;
  Dl_info object;
  void* found = nullptr;
  if (dladdr(caller, &object) != 0) {
    found = SymbolOf(object, kDefault);
  }
  if (found == nullptr || IsOwn(found)) {
    // The caller is the program itself, which is linked with this library first and with its LevelDB next.
    found = dlsym(RTLD_NEXT, kDefault);
  }
  if (found == nullptr || dladdr(found, &object) == 0) {
    return copy;
  }
  copy.base = object.dli_fbase;
  copy.file = object.dli_fname;
  copy.default_env = reinterpret_cast<leveldb::Env* (*)()>(found);
  copy.misfit = Misfit(object);
  return copy;
}

}  // namespace furrow
