#include "flush_choice.h"

namespace furrow {

namespace {

// The last FlushChoice that this thread began and did not destroy.
thread_local FlushChoice* current = nullptr;

}  // namespace

FlushChoices::Write::Write(FlushChoices& choices, bool wait) : choices_(choices) {
  std::unique_lock<std::mutex> lock(choices_.mutex_);
  if (wait) {
    choices_.changed_.wait(lock, [this] { return choices_.open_.empty(); });
  }
  entered_ = choices_.open_.empty();
  choices_.writes_ += entered_ ? 1 : 0;
}

FlushChoices::Write::~Write() {
  std::lock_guard<std::mutex> lock(choices_.mutex_);
  if (entered_ && --choices_.writes_ == 0 && !choices_.open_.empty()) {
    choices_.changed_.notify_all();
  }
}

FlushChoices::Compaction::Compaction(FlushChoices& choices, uint32_t family) : choices_(choices), family_(family) {
  std::lock_guard<std::mutex> lock(choices_.mutex_);
  ++choices_.compactions_[family_];
}

FlushChoices::Compaction::~Compaction() {
  std::lock_guard<std::mutex> lock(choices_.mutex_);
  const auto running = choices_.compactions_.find(family_);
  if (--running->second == 0) {
    choices_.compactions_.erase(running);
  }
}

void FlushChoices::BatchesHaveMarks() {
  std::lock_guard<std::mutex> lock(mutex_);
  marks_ = true;
}

void FlushChoices::MemtableSwitched() {
  for (FlushChoice* choice = current; choice != nullptr; choice = choice->outer_) {
    if (&choice->choices_ == this) {
      std::lock_guard<std::mutex> lock(mutex_);
      open_.erase(choice);
      changed_.notify_all();
      return;
    }
  }
}

void FlushChoices::CompactionBegun(uint32_t family) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto running = compactions_.find(family);
  if (running == compactions_.end() || running->second != 1) {
    return;
  }
  for (FlushChoice* choice : open_) {
    if (choice->compacted_ == family && choice->begun_) {
      open_.erase(choice);
      changed_.notify_all();
      return;
    }
  }
}

FlushChoice::FlushChoice(FlushChoices& choices, uint32_t compacted)
    : choices_(choices), compacted_(compacted), outer_(current) {
  std::unique_lock<std::mutex> lock(choices_.mutex_);
  choices_.changed_.wait(lock, [this] { return !choices_.marks_ || choices_.open_.empty(); });
  marks_ = choices_.marks_;
  choices_.open_.insert(this);
  choices_.changed_.wait(lock, [this] { return choices_.writes_ == 0; });
  begun_ = true;
  current = this;
}

FlushChoice::~FlushChoice() {
  current = outer_;
  std::lock_guard<std::mutex> lock(choices_.mutex_);
  choices_.open_.erase(this);
  choices_.changed_.notify_all();
}

}  // namespace furrow
