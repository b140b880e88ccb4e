#include "flush_choice.h"

namespace furrow {

namespace {

// The choice that this thread's call of RocksDB makes.
thread_local FlushChoice* current = nullptr;

}  // namespace

FlushChoices::Write::Write(FlushChoices& choices, bool wait) : choices_(choices) {
  std::unique_lock<std::mutex> lock(choices_.mutex_);
  if (wait) {
    choices_.changed_.wait(lock, [this] { return choices_.holding_ == 0; });
  }
  entered_ = choices_.holding_ == 0;
  choices_.writes_ += entered_ ? 1 : 0;
}

FlushChoices::Write::~Write() {
  std::lock_guard<std::mutex> lock(choices_.mutex_);
  choices_.writes_ -= entered_ ? 1 : 0;
  if (choices_.writes_ == 0 && choices_.holding_ != 0) {
    choices_.changed_.notify_all();
  }
}

void FlushChoices::BatchesHaveMarks() {
  std::unique_lock<std::mutex> lock(mutex_);
  marks_ = true;
  changed_.wait(lock, [this] { return open_.size() == holding_; });
}

void FlushChoices::CompactionBegun(uint32_t family) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto choice = open_.begin(); choice != open_.end();) {
    FlushChoice* const one = *choice++;
    if (one->family_ == family) {
      one->EndLocked();
    }
  }
}

FlushChoice::FlushChoice(FlushChoices& choices, uint32_t family) : choices_(choices), family_(family) {
  std::unique_lock<std::mutex> lock(choices_.mutex_);
  choices_.open_.insert(this);
  if (choices_.marks_) {
    holds_ = true;
    ++choices_.holding_;
    choices_.changed_.wait(lock, [this] { return choices_.writes_ == 0; });
  }
  current = this;
}

FlushChoice::~FlushChoice() {
  current = nullptr;
  std::lock_guard<std::mutex> lock(choices_.mutex_);
  EndLocked();
}

void FlushChoice::MemtableSwitched() {
  if (current != nullptr) {
    std::lock_guard<std::mutex> lock(current->choices_.mutex_);
    current->EndLocked();
  }
}

void FlushChoice::EndLocked() {
  if (choices_.open_.erase(this) != 0) {
    choices_.holding_ -= holds_ ? 1 : 0;
    choices_.changed_.notify_all();
  }
}

}  // namespace furrow
