// A test program, unmodified RocksDB code, that writes, flushes, compacts, ingests files, takes checkpoints, and
// creates and drops column families at random until it kills itself. A journal outside the drive records the
// acknowledgements. The next run of the program first checks the database against the journal.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <shared_mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "rocksdb/compaction_filter.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "rocksdb/merge_operator.h"
#include "rocksdb/sst_file_writer.h"
#include "rocksdb/utilities/checkpoint.h"

using namespace rocksdb;  // NOLINT: a test program

namespace {

constexpr int kWriters = 3;
constexpr int kKeys = 8;
constexpr int kFamilies = 3;
constexpr int kMostMillis = 800;

void Expect(bool fine, const std::string& what) {
  if (!fine) {
    fprintf(stderr, "FAILED: %s\n", what.c_str());
    _exit(1);
  }
}

void Ok(const Status& status, const std::string& what) { Expect(status.ok(), what + ": " + status.ToString()); }

class Adder : public AssociativeMergeOperator {
 public:
  bool Merge(const Slice&, const Slice* existing, const Slice& value, std::string* out, Logger*) const override {
    const long before = existing != nullptr ? atol(existing->ToString().c_str()) : 0;
    *out = std::to_string(before + atol(value.ToString().c_str()));
    return true;
  }
  const char* Name() const override { return "adder"; }
};

// A compaction filter that blocks compactions while `hold` is set, so that flushes that avoid write stalls have to
// wait.
class Holding : public CompactionFilter {
 public:
  bool Filter(int, const Slice&, const Slice&, std::string*, bool*) const override {
    while (hold) {
      usleep(1000);
    }
    return false;
  }
  const char* Name() const override { return "holding"; }
  std::atomic<bool> hold{false};
};

// The journal has lines "OPERATION NUMBERS", each appended with one write. A lower-case operation has begun; the
// upper-case one is acknowledged.
//   b WRITER BATCH FAMILIES MERGES   a batch; FAMILIES is a mask
//   P WRITER BATCH                   batches up to this one are durable
//   c/C FAMILY  d/D FAMILY           create and drop
//   i VALUE  I VALUE                 a put or an ingested file; acknowledged when durable
class Journal {
 public:
  explicit Journal(const std::string& path) : file_(open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600)) {
    Expect(file_ >= 0, "the journal " + path);
  }
  void Note(char operation, std::initializer_list<uint64_t> numbers) {
    std::string line(1, operation);
    for (uint64_t number : numbers) {
      line += " " + std::to_string(number);
    }
    line += "\n";
    Expect(write(file_, line.data(), line.size()) == static_cast<ssize_t>(line.size()), "writing the journal");
  }

 private:
  int file_;
};

struct Batch {
  uint64_t number = 0;
  uint64_t families = 0;
  bool merges = false;
};

// The database's state as the previous run's journal describes it. For an emulated drive a killed process is a power
// cut: batches that were not synced may be lost, the newest first.
struct Model {
  struct Event {
    char operation = 0;
    int at = 0;
    Batch batch;
  };
  std::vector<Event> events;
  std::array<uint64_t, kWriters> promised{};
  std::array<uint64_t, kWriters> begun{};
  // Families whose creation or drop began and was not acknowledged, with the operation.
  std::map<int, char> changes;
  uint64_t value_promised = 0;
  uint64_t value_begun = 0;
  // By family, writer and key: the number of the last batch that put the key; 0 if no batch wrote the key or the last
  // one deleted it.
  std::array<std::array<std::array<uint64_t, kKeys>, kWriters>, kFamilies + 1> values{};
  std::array<uint64_t, kWriters> merged{};
  std::array<bool, kFamilies + 1> families{true};

  explicit Model(const std::string& path) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      char operation = 0;
      uint64_t n = 0;
      words >> operation >> n;
      Event event{operation, static_cast<int>(n), {}};
      switch (operation) {
        case 'b':
          words >> event.batch.number >> event.batch.families >> event.batch.merges;
          begun[event.at] = event.batch.number;
          events.push_back(event);
          break;
        case 'P': {
          uint64_t number = 0;
          words >> number;
          promised[event.at] = std::max(promised[event.at], number);
          break;
        }
        case 'c': case 'd': changes[event.at] = operation; events.push_back(event); break;
        case 'C': case 'D': changes.erase(event.at); break;
        case 'i': value_begun = n; break;
        case 'I': value_promised = n; break;
        // The state that the previous run saved at the journal's beginning: see Save.
        case 'm': words >> merged[event.at] >> begun[event.at]; promised[event.at] = begun[event.at]; break;
        case 'f': families[event.at] = true; break;
        case 'v': {
          int writer = 0, key = 0;
          words >> writer >> key >> values[event.at][writer][key];
          break;
        }
        default: Expect(false, "a line of the journal: " + line);
      }
    }
  }

  // Computes the expected content of a database that has each writer's batches up to `kept`, and all changes of
  // families except `undone`.
  void Replay(const std::array<uint64_t, kWriters>& kept, const std::set<int>& undone) {
    for (auto event = events.begin(); event != events.end(); ++event) {
      if (event->operation != 'b') {
        const auto same = [&](const Event& other) { return other.operation != 'b' && other.at == event->at; };
        if (undone.count(event->at) == 0 || std::any_of(event + 1, events.end(), same)) {
          families[event->at] = event->operation == 'c';
          values[event->at] = {};
        }
        continue;
      }
      const Batch& batch = event->batch;
      if (batch.number > kept[event->at]) {
        continue;
      }
      for (int family = 0; family <= kFamilies; ++family) {
        if ((batch.families >> family & 1) != 0) {
          values[family][event->at][batch.number % kKeys] = batch.number % 5 == 4 ? 0 : batch.number;
        }
      }
      merged[event->at] += batch.merges ? 1 : 0;
    }
  }

  // Begins a new journal with the database's present state.
  void Save(const std::string& path, const std::array<uint64_t, kWriters>& last, uint64_t value) const {
    std::ofstream file(path + ".new");
    for (int writer = 0; writer < kWriters; ++writer) {
      file << "m " << writer << " " << merged[writer] << " " << last[writer] << "\n";
    }
    for (int family = 0; family <= kFamilies; ++family) {
      if (families[family]) {
        file << "f " << family << "\n";
      }
      for (int writer = 0; writer < kWriters; ++writer) {
        for (int key = 0; key < kKeys; ++key) {
          file << "v " << family << " " << writer << " " << key << " " << values[family][writer][key] << "\n";
        }
      }
    }
    file << "i " << value << "\nI " << value << "\n";
    file.close();
    Expect(file.good() && rename((path + ".new").c_str(), path.c_str()) == 0, "saving the journal");
  }
};

std::string FamilyName(int family) { return family == 0 ? kDefaultColumnFamilyName : "family" + std::to_string(family); }
std::string Key(int writer, uint64_t key) { return "key" + std::to_string(writer) + "-" + std::to_string(key); }
std::string Last(int writer) { return "last" + std::to_string(writer); }
// The key, in the default family, of the writer's last batch that wrote to `family`.
std::string LastOf(int family, int writer) { return Last(writer) + " of " + FamilyName(family); }
std::string Count(int writer) { return "count" + std::to_string(writer); }

class World {
 public:
  World(const std::string& url, const std::string& journal, uint64_t seed, bool exact)
      : seed_(seed), exact_(exact), path_(journal), model_(journal) {
    Ok(FileSystem::CreateFromString(ConfigOptions(), "furrow://" + url, &fs_), "the file system");
    env_ = NewCompositeEnv(fs_);
    options_.env = env_.get();
    options_.create_if_missing = true;
    options_.write_buffer_size = 64 << 10;
    options_.compression = kNoCompression;
    options_.max_background_jobs = 4;
    options_.merge_operator = std::make_shared<Adder>();
  }

  void Open() {
    std::vector<std::string> names = {kDefaultColumnFamilyName};
    if (env_->FileExists("/db/CURRENT").ok()) {
      Ok(DB::ListColumnFamilies(options_, "/db", &names), "families");
    }
    there_.insert(names.begin(), names.end());
    std::vector<ColumnFamilyDescriptor> descriptors;
    for (const std::string& name : names) {
      descriptors.emplace_back(name, FamilyOptions(name == kDefaultColumnFamilyName ? 0 : 1));
    }
    std::vector<ColumnFamilyHandle*> handles;
    Ok(DB::Open(options_, "/db", descriptors, &handles, &db_), "opening");
    for (int family = 0; family <= kFamilies; ++family) {
      for (size_t n = 0; n < names.size(); ++n) {
        handles_[family] = names[n] == FamilyName(family) ? handles[n] : handles_[family];
      }
    }
  }

  void Check() {
    std::array<uint64_t, kWriters> last{};
    for (int writer = 0; writer < kWriters; ++writer) {
      last[writer] = Number(0, Last(writer));
      Expect(last[writer] >= model_.promised[writer] && last[writer] <= model_.begun[writer],
             "writer " + std::to_string(writer) + " ends at " + std::to_string(last[writer]) + ": durable " +
                 std::to_string(model_.promised[writer]) + ", begun " + std::to_string(model_.begun[writer]));
      acknowledged_[writer] = last[writer];
    }
    std::set<int> undone;
    for (const auto& change : model_.changes) {
      if ((handles_[change.first] != nullptr) != (change.second == 'c')) {
        undone.insert(change.first);
      }
    }
    model_.Replay(last, undone);
    size_t families = 0;
    for (int family = 0; family <= kFamilies; ++family) {
      const bool is = handles_[family] != nullptr;
      families += is ? 1 : 0;
      Expect(is == model_.families[family], FamilyName(family) + (is ? " is back" : " is lost"));
      for (int writer = 0; writer < kWriters; ++writer) {
        for (int key = 0; is && key < kKeys; ++key) {
          Same(Number(family, Key(writer, key)), model_.values[family][writer][key],
               Key(writer, key) + " of " + FamilyName(family));
        }
      }
    }
    Expect(there_.size() == families, "there are families that nobody made");
    for (int writer = 0; writer < kWriters; ++writer) {
      Same(Number(0, Count(writer)), model_.merged[writer], Count(writer));
    }
    value_ = Number(0, "ingested");
    Expect(value_ >= model_.value_promised && value_ <= model_.value_begun, "the ingested key is " + std::to_string(value_));
    model_.Save(path_, last, value_);
    journal_ = std::make_unique<Journal>(path_);
  }

  // Runs random operations until a moment that the seed selects, and then kills the process or closes the database.
  void Work() {
    std::mt19937_64 random(seed_);
    const bool kill_it = random() % 3 != 0;
    const useconds_t micros = static_cast<useconds_t>(50 + random() % kMostMillis) * 1000;
    std::vector<std::thread> threads;
    for (int writer = 0; writer < kWriters; ++writer) {
      threads.emplace_back([this, writer] { Write(writer); });
    }
    threads.emplace_back([this] { ChangeFamilies(); });
    threads.emplace_back([this] { Maintain(); });
    threads.emplace_back([this] { Hold(); });
    usleep(micros);
    if (kill_it) {
      kill(getpid(), SIGKILL);
    }
    stop_ = true;
    for (std::thread& thread : threads) {
      thread.join();
    }
    dropped_.insert(dropped_.end(), handles_.begin(), handles_.end());
    for (ColumnFamilyHandle* handle : dropped_) {
      if (handle != nullptr) {
        Ok(db_->DestroyColumnFamilyHandle(handle), "a handle");
      }
    }
    Ok(db_->Close(), "close");
    delete db_;
  }

 private:
  ColumnFamilyOptions FamilyOptions(int family) {
    ColumnFamilyOptions options(options_);
    if (family != 0) {
      options.compaction_filter = &filter_;
      options.level0_file_num_compaction_trigger = 2;
      options.level0_slowdown_writes_trigger = 3;
      options.level0_stop_writes_trigger = 1000;
    }
    return options;
  }

  uint64_t Number(int family, const std::string& key) { return Number(db_, handles_[family], key); }

  static uint64_t Number(DB* db, ColumnFamilyHandle* family, const std::string& key) {
    std::string value;
    Status status = db->Get(ReadOptions(), family, key, &value);
    Expect(status.ok() || status.IsNotFound(), key + ": " + status.ToString());
    return status.ok() ? strtoull(value.c_str(), nullptr, 10) : 0;
  }

  static void Same(uint64_t is, uint64_t expected, const std::string& what) {
    Expect(is == expected, what + " is " + std::to_string(is) + ", not " + std::to_string(expected));
  }

  std::mt19937_64 Random(uint64_t thread) const { return std::mt19937_64(seed_ * 1000 + thread); }

  void Write(int writer) {
    std::mt19937_64 random = Random(static_cast<uint64_t>(writer));
    for (Batch batch{acknowledged_[writer] + 1, 0, false}; !stop_; ++batch.number) {
      std::shared_lock<std::shared_mutex> lock(families_);
      batch.families = 1;
      batch.merges = exact_ && random() % 3 == 0;
      WriteBatch records;
      for (int family = 0; family <= kFamilies; ++family) {
        // The last family is written rarely: its memtable is empty at most flushes.
        const uint64_t rarity = family == 0 ? 1 : family == kFamilies ? 40 : 2;
        if (handles_[family] == nullptr || random() % rarity != 0) {
          continue;
        }
        batch.families |= 1ULL << family;
        if (family != 0) {
          Ok(records.Put(handles_[family], Last(writer), std::to_string(batch.number)), "batch");
          Ok(records.Put(LastOf(family, writer), std::to_string(batch.number)), "batch");
        }
        const std::string key = Key(writer, batch.number % kKeys);
        const std::string value = std::to_string(batch.number) + std::string(random() % 600, ' ');
        Ok(batch.number % 5 == 4 ? records.Delete(handles_[family], key) : records.Put(handles_[family], key, value), "batch");
      }
      Ok(records.Put(Last(writer), std::to_string(batch.number)), "batch");
      if (batch.merges) {
        Ok(records.Merge(Count(writer), "1"), "batch");
      }
      WriteOptions options;
      options.sync = random() % 4 == 0;
      journal_->Note('b', {static_cast<uint64_t>(writer), batch.number, batch.families, batch.merges});
      Ok(db_->Write(options, &records), "write");
      if (options.sync) {
        journal_->Note('P', {static_cast<uint64_t>(writer), batch.number});
      }
      acknowledged_[writer] = batch.number;
    }
  }

  void ChangeFamilies() {
    std::mt19937_64 random = Random(10);
    while (!stop_) {
      usleep(static_cast<useconds_t>(random() % 80000));
      const int family = 1 + static_cast<int>(random() % kFamilies);
      std::unique_lock<std::shared_mutex> lock(families_);
      ColumnFamilyHandle*& handle = handles_[family];
      if (handle == nullptr) {
        journal_->Note('c', {static_cast<uint64_t>(family)});
        Ok(db_->CreateColumnFamily(FamilyOptions(family), FamilyName(family), &handle), "creating a family");
        journal_->Note('C', {static_cast<uint64_t>(family)});
      } else {
        journal_->Note('d', {static_cast<uint64_t>(family)});
        Ok(db_->DropColumnFamily(handle), "dropping a family");
        journal_->Note('D', {static_cast<uint64_t>(family)});
        // The handle is freed later, because running flushes may still use it.
        dropped_.push_back(handle);
        handle = nullptr;
      }
    }
    filter_.hold = false;
  }

  void Hold() {
    std::mt19937_64 random = Random(11);
    while (!stop_) {
      filter_.hold = true;
      usleep(static_cast<useconds_t>(random() % 300000));
      filter_.hold = false;
      usleep(static_cast<useconds_t>(random() % 30000));
    }
  }

  void Maintain() {
    std::mt19937_64 random = Random(12);
    while (!stop_) {
      usleep(static_cast<useconds_t>(random() % 15000));
      switch (random() % 8) {
        case 0: case 1: case 2:
          Durable([this] { Ok(db_->Flush(FlushOptions()), "flush"); });
          if (random() % 8 == 0) {
            // Kill the process right after a flush: the log has retired the records that the flush should have
            // written.
            kill(getpid(), SIGKILL);
          }
          break;
        case 3: Compact(random() % 2 == 0); break;
        case 4: Copy(); break;
        case 5: Durable([this] { Ok(db_->SyncWAL(), "SyncWAL"); }); break;
        default:
          if (exact_) {
            Ingest(++value_, random() % 2 == 0);
          }
          break;
      }
    }
  }

  void Compact(bool bounded) {
    const Slice from("key");
    const Slice to("last");
    Ok(db_->CompactRange(CompactRangeOptions(), bounded ? &from : nullptr, bounded ? &to : nullptr), "compaction");
  }

  // Runs an operation that makes all acknowledged batches durable, and notes in the journal that they are.
  template <typename F>
  void Durable(F run) {
    std::array<uint64_t, kWriters> before{};
    for (int writer = 0; writer < kWriters; ++writer) {
      before[writer] = acknowledged_[writer];
    }
    run();
    for (int writer = 0; writer < kWriters; ++writer) {
      journal_->Note('P', {static_cast<uint64_t>(writer), before[writer]});
    }
  }

  // Takes a checkpoint, which must contain all batches that were acknowledged before the call, each in all of its
  // families.
  void Copy() {
    std::array<uint64_t, kWriters> before{};
    for (int writer = 0; writer < kWriters; ++writer) {
      before[writer] = acknowledged_[writer];
    }
    Remove("/copy.tmp");
    Remove("/copy");
    Checkpoint* checkpoint = nullptr;
    Ok(Checkpoint::Create(db_, &checkpoint), "checkpoint");
    Ok(checkpoint->CreateCheckpoint("/copy"), "checkpoint");
    delete checkpoint;
    std::vector<std::string> names;
    Ok(DB::ListColumnFamilies(options_, "/copy", &names), "families of the checkpoint");
    std::vector<ColumnFamilyDescriptor> descriptors;
    for (const std::string& name : names) {
      descriptors.emplace_back(name, FamilyOptions(0));
    }
    std::vector<ColumnFamilyHandle*> handles;
    DB* copy = nullptr;
    Ok(DB::OpenForReadOnly(options_, "/copy", descriptors, &handles, &copy), "the checkpoint");
    for (ColumnFamilyHandle* handle : handles) {
      for (int family = 1; family <= kFamilies; ++family) {
        for (int writer = 0; handle->GetName() == FamilyName(family) && writer < kWriters; ++writer) {
          const uint64_t last = Number(copy, handle, Last(writer));
          // A family that was dropped and created again has no record of earlier batches.
          Expect(last == 0 || last == Number(copy, copy->DefaultColumnFamily(), LastOf(family, writer)),
                 "a checkpoint has a part of batch " + std::to_string(last) + " in " + FamilyName(family));
        }
      }
    }
    for (int writer = 0; writer < kWriters; ++writer) {
      const uint64_t last = Number(copy, copy->DefaultColumnFamily(), Last(writer));
      Expect(last >= before[writer], "a checkpoint ends at " + std::to_string(last) + " of writer " +
                                         std::to_string(writer) + ", before " + std::to_string(before[writer]));
    }
    for (ColumnFamilyHandle* handle : handles) {
      Ok(copy->DestroyColumnFamilyHandle(handle), "a handle");
    }
    delete copy;
  }

  void Remove(const std::string& directory) {
    std::vector<std::string> names;
    if (env_->GetChildren(directory, &names).ok()) {
      for (const std::string& name : names) {
        env_->DeleteFile(directory + "/" + name).PermitUncheckedError();
      }
      Ok(env_->DeleteDir(directory), "removing " + directory);
    }
  }

  void Ingest(uint64_t value, bool put) {
    journal_->Note('i', {value});
    if (put) {
      Ok(db_->Put(WriteOptions(), "ingested", std::to_string(value)), "put");
    } else {
      SstFileWriter table{EnvOptions(), options_};
      Ok(table.Open("/table.sst"), "a table");
      Ok(table.Put("ingested", std::to_string(value)), "a table");
      Ok(table.Finish(), "a table");
      Ok(db_->IngestExternalFile({"/table.sst"}, IngestExternalFileOptions()), "ingesting");
      journal_->Note('I', {value});
    }
  }

  uint64_t seed_;
  bool exact_;
  std::string path_;
  Model model_;
  std::unique_ptr<Journal> journal_;
  std::shared_ptr<FileSystem> fs_;
  std::unique_ptr<Env> env_;
  Holding filter_;
  Options options_;
  DB* db_ = nullptr;
  // Writers hold this lock shared during a write; changes of the families hold it exclusively.
  std::shared_mutex families_;
  std::array<ColumnFamilyHandle*, kFamilies + 1> handles_{};
  std::vector<ColumnFamilyHandle*> dropped_;
  std::array<std::atomic<uint64_t>, kWriters> acknowledged_{};
  uint64_t value_ = 0;
  std::set<std::string> there_;
  std::atomic<bool> stop_{false};
};

}  // namespace

// Usage: PROGRAM URL JOURNAL SEED plain|exact|check
int main(int argc, char** argv) {
  Expect(argc == 5, "usage: program DEVICE-URL JOURNAL SEED plain|exact|check");
  const std::string way = argv[4];
  World world(argv[1], argv[2], strtoull(argv[3], nullptr, 10), way == "exact");
  world.Open();
  world.Check();
  if (way != "check") {
    world.Work();
    return 0;
  }
  _exit(0);
}
