// FlushChoices keep writes with marks out between RocksDB's choice of a flush's families and the switch of their
// memtables. A flush of all families is chosen before it happens: the wrapper lists the families by their handles,
// and RocksDB 7.8 chooses the families of CompactRange, Resume and CancelAllBackgroundWork before it enters
// its write thread. Assume that a batch comes between the choice and the switch, and writes to a family that was not
// chosen: the flush writes the batch's mark and not its record, and a crash then loses the batch. In the opposite
// case the flush writes the record without the mark, and a recovery repeats a merge.
#pragma once

#include <stdint.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>

namespace furrow {

class FlushChoice;

// The writes of one database, and its open choices of flushes' families. All methods may be called from any thread.
class FlushChoices {
 public:
  // A write to a database whose batches carry marks, also an unlogged one without a mark. The constructor waits while
  // a FlushChoice is open; without `wait` the write does not begin then.
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

  // A manual compaction of a family that runs through the database wrapper.
  class Compaction {
   public:
    Compaction(FlushChoices& choices, uint32_t family);
    ~Compaction();
    Compaction(const Compaction&) = delete;

   private:
    FlushChoices& choices_;
    const uint32_t family_;
  };

  // Notes that batches carry marks from now on, and that only one FlushChoice may be open at a time.
  void BatchesHaveMarks();
  // Called when a memtable is switched, on the thread that switched it: ends this thread's FlushChoice.
  void MemtableSwitched();
  // Called when a manual compaction of `family` begins: ends the FlushChoice of that compaction, if no other manual
  // compaction of the family runs. A flush that the compaction needed is over.
  void CompactionBegun(uint32_t family);

 private:
  friend class FlushChoice;

  std::mutex mutex_;
  // Notified after each change of the fields below.
  std::condition_variable changed_;
  bool marks_ = false;
  // Number of writes that are being applied.
  uint64_t writes_ = 0;
  std::set<FlushChoice*> open_;
  // Number of manual compactions by family.
  std::map<uint32_t, uint64_t> compactions_;
};

// One flush's choice of families, from before the choice until one of three events: this thread switches the first
// memtable (RocksDB's write thread keeps writes out from then on), the compaction of the family begins, or this
// object is destroyed.
class FlushChoice {
 public:
  enum : uint32_t { kNoFamily = UINT32_MAX };

  // Begins a choice. `compacted`: the family of a compaction. If batches carry marks, waits until no other
  // FlushChoice is open and no write is being applied. A write that RocksDB stalls counts as being applied until the
  // stall ends.
  explicit FlushChoice(FlushChoices& choices, uint32_t compacted = kNoFamily);
  ~FlushChoice();
  FlushChoice(const FlushChoice&) = delete;
  // Whether batches carried marks when this choice began.
  bool marks() const { return marks_; }

 private:
  friend class FlushChoices;

  FlushChoices& choices_;
  const uint32_t compacted_;
  // This thread's choice of another database whose listener made this choice.
  FlushChoice* const outer_;
  bool marks_ = false;
  // Whether the constructor has finished waiting.
  bool begun_ = false;
};

}  // namespace furrow
