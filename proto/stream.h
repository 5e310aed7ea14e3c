// Both ends of a bidirectional stream as a queue in and a queue out. Includes gRPC: for .cc files only.
//
// Neither end ever blocks a sender; messages leave in the order sent. `on_message` and `on_closed` run on a gRPC or
// reader thread and must return at once; `on_closed` runs exactly once, last.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "proto/hand_over.h"

namespace ds {

/// The server's end: a reactor that keeps itself alive until gRPC is done with it.
template <class In, class Out>
class ServerStream final : public grpc::ServerBidiReactor<In, Out> {
 public:
  using OnMessage = std::function<void(In&&)>;
  using OnClosed = std::function<void()>;

  /// The reactor to return from the service's method; `Open` starts it.
  static std::shared_ptr<ServerStream> Make() {
    std::shared_ptr<ServerStream> stream(new ServerStream);
    stream->self_ = stream;
    stream->started_.Give();
    return stream;
  }

  /// `paced`: after each message reading rests until ReadNext(), so that a slow owner slows its peer down.
  void Open(OnMessage on_message, OnClosed on_closed, bool paced) {
    on_message_ = std::move(on_message);
    on_closed_ = std::move(on_closed);
    paced_ = paced;
    started_.Give();
    this->StartRead(&in_);
  }

  void ReadNext() {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    started_.Give();
    this->StartRead(&in_);
  }

  /// Any thread. Dropped when the stream is closed or closing.
  void Send(Out message) {
    std::lock_guard lock(mutex_);
    if (finished_ || closing_) return;
    queue_.push_back(std::move(message));
    if (queue_.size() == 1) this->StartWrite(&queue_.front());
  }

  /// Ends the stream after what was sent so far.
  void Close(grpc::Status status = grpc::Status::OK) {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    closing_ = true;
    status_ = status;
    if (queue_.empty()) FinishLocked();
  }

 private:
  ServerStream() = default;

  void OnReadDone(bool ok) override {
    started_.Take();
    if (ok) {
      In message = std::move(in_);
      in_ = In();
      on_message_(std::move(message));
      if (!paced_) ReadNext();
    } else {
      Close();
    }
    started_.Give();  // to OnDone
  }

  void OnWriteDone(bool ok) override {
    started_.Take();
    std::lock_guard lock(mutex_);
    if (finished_) return;
    queue_.pop_front();
    if (!ok) queue_.clear();
    if (!queue_.empty()) {
      this->StartWrite(&queue_.front());
    } else if (closing_ || !ok) {
      FinishLocked();
    }
  }

  void OnCancel() override {
    started_.Take();
    std::lock_guard lock(mutex_);
    if (!finished_) {
      status_ = grpc::Status::CANCELLED;
      FinishLocked();
    }
  }

  void OnDone() override {
    started_.Take();
    if (on_closed_) on_closed_();
    on_message_ = nullptr;
    on_closed_ = nullptr;
    std::shared_ptr<ServerStream> last = std::move(self_);
  }

  void FinishLocked() {
    finished_ = true;
    this->Finish(status_);
  }

  HandOver started_;
  std::shared_ptr<ServerStream> self_;
  OnMessage on_message_;
  OnClosed on_closed_;
  bool paced_ = false;
  In in_;
  std::mutex mutex_;
  std::deque<Out> queue_;
  bool closing_ = false, finished_ = false;
  grpc::Status status_ = grpc::Status::OK;
};

/// The client's end: a reader thread and a writer thread over the synchronous stream. The owner calls Shutdown() or
/// destroys it from a thread that is neither.
template <class In, class Out>
class ClientStream {
 public:
  using Wire = grpc::ClientReaderWriterInterface<Out, In>;

  /// `context` must outlive the wire and is owned here.
  ClientStream(std::unique_ptr<grpc::ClientContext> context, std::unique_ptr<Wire> wire,
               std::function<void(In&&)> on_message, std::function<void()> on_closed)
      : context_(std::move(context)), wire_(std::move(wire)) {
    reader_ = std::thread([this, on_message = std::move(on_message), on_closed = std::move(on_closed)] {
      for (In message; wire_->Read(&message); message = In()) on_message(std::move(message));
      Stop();
      on_closed();
    });
    writer_ = std::thread([this] { WriteAll(); });
  }
  ~ClientStream() { Shutdown(std::chrono::milliseconds(0)); }

  void Send(Out message) {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    bytes_ += message.ByteSizeLong();
    queue_.push_back(std::move(message));
    changed_.notify_all();
  }

  /// Blocks while more than `bytes` wait to be written: what keeps a flood of log lines from filling memory. Returns
  /// false when the stream ended.
  bool WaitBelow(size_t bytes) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || bytes_ <= bytes; });
    return !stopped_;
  }

  /// Writes what was sent, half-closes and waits for the peer to end; after `patience` cancels. Idempotent.
  void Shutdown(std::chrono::milliseconds patience) {
    {
      std::unique_lock lock(mutex_);
      last_ = true;
      changed_.notify_all();
      if (patience.count() > 0) changed_.wait_for(lock, patience, [&] { return stopped_; });
    }
    context_->TryCancel();
    if (reader_.joinable()) reader_.join();
    if (writer_.joinable()) writer_.join();
    if (wire_) wire_->Finish();
    wire_.reset();
  }

 private:
  void Stop() {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

  void WriteAll() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopped_ || last_ || !queue_.empty(); });
      if (stopped_) return;
      if (queue_.empty()) {  // last_: nothing more will come
        lock.unlock();
        wire_->WritesDone();
        return;
      }
      Out message = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      bool ok = wire_->Write(message);
      lock.lock();
      bytes_ -= message.ByteSizeLong();
      changed_.notify_all();
      if (!ok) return;  // the reader sees the end
    }
  }

  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<Wire> wire_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Out> queue_;
  size_t bytes_ = 0;
  bool stopped_ = false, last_ = false;
  std::thread reader_, writer_;
};

}  // namespace ds
