// RocksDB before 8.1 chooses the families of some atomic flushes before it enters its write thread: those of
// CompactRange and Resume. A batch that comes between that choice and the switch of the memtables to a family with an
// empty memtable has its mark flushed and its record not; a crash then loses the batch. FlushChoices keeps batches with
// marks out for that time. RocksDB chooses the families of all other flushes in its write thread, but for GetLiveFiles,
// which the wrapper calls without a flush.
#pragma once

#include <stdint.h>

#include <condition_variable>
#include <mutex>
#include <set>

namespace furrow {

class FlushChoice;

// The writes and the choices of one database. All methods may be called from any thread.
class FlushChoices {
 public:
  // A write to a database whose batches carry marks; also one that is not logged and has no mark. While an open choice
  // keeps writes out, the constructor waits; without `wait` the write does not enter.
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

  // From now on batches carry marks: every choice keeps writes out. Waits for the choices that do not. No batch is
  // being applied meanwhile.
  void BatchesHaveMarks();
  // A manual compaction of a family has begun: whatever flush it needed is over.
  void CompactionBegun(uint32_t family);

 private:
  friend class FlushChoice;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool marks_ = false;
  // Writes that are being applied.
  uint64_t writes_ = 0;
  // Open choices that keep writes out.
  uint64_t holding_ = 0;
  std::set<FlushChoice*> open_;
};

// A call of RocksDB, on this thread, that may choose the families of a flush too early. Open until this thread has
// switched the first memtable (RocksDB's write thread keeps writes out from then on), the family's compaction has
// begun, or this object is destroyed.
class FlushChoice {
 public:
  // `family`: the family of the compaction. If batches have marks, waits until no write is being applied. Writes to
  // come then wait; a stall ends the wait only when RocksDB ends the stall.
  FlushChoice(FlushChoices& choices, uint32_t family);
  ~FlushChoice();
  FlushChoice(const FlushChoice&) = delete;
  // Whether writes are kept out.
  bool holds() const { return holds_; }
  // To be called by the event of a memtable's switch, on the thread that switched it.
  static void MemtableSwitched();

 private:
  friend class FlushChoices;
  void EndLocked();

  FlushChoices& choices_;
  const uint32_t family_;
  bool holds_ = false;
};

}  // namespace furrow
