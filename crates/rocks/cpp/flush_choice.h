// A flush of all families is chosen before it happens: the wrapper lists the families by their handles, and RocksDB
// before 8.1 chooses the families of CompactRange, Resume and CancelAllBackgroundWork before it enters its write
// thread. A batch that comes after the choice and before the switch of the memtables, to a family that was not chosen,
// has its mark flushed and its record not; a crash then loses the batch. The other way around, a record is flushed
// without its mark, and a crash repeats a merge. FlushChoices keeps writes with marks out for that time.
#pragma once

#include <stdint.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>

namespace furrow {

class FlushChoice;

// The writes and the choices of one database. All methods may be called from any thread.
class FlushChoices {
 public:
  // A write to a database whose batches carry marks; also one that is not logged and has no mark. The constructor waits
  // while a choice is open; without `wait` the write does not enter then.
  class Write {
   public:
    Write(FlushChoices& choices, bool wait);
    ~Write();
    Write(const Write&) = delete;
    bool entered() const { return entered_; }

   private:
    FlushChoices& choices_;
    bool entered_ = false;
  };

  // A manual compaction of a family that runs through the wrapper.
  class Compaction {
   public:
    Compaction(FlushChoices& choices, uint32_t family);
    ~Compaction();
    Compaction(const Compaction&) = delete;

   private:
    FlushChoices& choices_;
    const uint32_t family_;
  };

  // From now on batches carry marks, and one choice is open at a time.
  void BatchesHaveMarks();
  // The event of a memtable's switch, on the thread that switched it: ends this thread's choice.
  void MemtableSwitched();
  // The event of a manual compaction's begin: ends the choice of a compaction of that family, if no other manual
  // compaction of the family runs. A flush that the compaction needed is over.
  void CompactionBegun(uint32_t family);

 private:
  friend class FlushChoice;

  std::mutex mutex_;
  // Any change below.
  std::condition_variable changed_;
  bool marks_ = false;
  // Writes that are being applied.
  uint64_t writes_ = 0;
  std::set<FlushChoice*> open_;
  // Manual compactions by family.
  std::map<uint32_t, uint64_t> compactions_;
};

// From before the choice of a flush's families, by this thread, until this thread has switched the first memtable
// (RocksDB's write thread keeps writes out from then on), the family's compaction has begun, or the object is
// destroyed.
class FlushChoice {
 public:
  enum : uint32_t { kNoFamily = UINT32_MAX };

  // `compacted`: the family of a compaction. If batches carry marks, waits until no other choice is open and no write
  // is being applied. A write that RocksDB stalls is being applied until the stall ends.
  explicit FlushChoice(FlushChoices& choices, uint32_t compacted = kNoFamily);
  ~FlushChoice();
  FlushChoice(const FlushChoice&) = delete;
  // Whether batches carried marks when the choice began.
  bool marks() const { return marks_; }

 private:
  friend class FlushChoices;

  FlushChoices& choices_;
  const uint32_t compacted_;
  // The thread's choice of another database, whose listener made this one.
  FlushChoice* const outer_;
  bool marks_ = false;
  // The constructor's wait is over.
  bool begun_ = false;
};

}  // namespace furrow
